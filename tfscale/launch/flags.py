"""The flags of `tfscale launch`."""

import argparse
from pathlib import Path

from tfscale.cluster.addresses import DEFAULT_PORT
from tfscale.cluster.shown import quoted

DESCRIPTION = (
    "Start the workers of a job, show their output after their rank, and end them all as soon as one fails: its exit "
    "status and last lines are those you see. Where srun, mpirun, Kubernetes, SkyPilot (and the like) or TF_CONFIG "
    "made this process one of several workers, the script runs in its place and joins them."
)
EPILOG = (
    "TensorFlow's server listens on every interface of a host, without a password: see --isolate-network. Workers on "
    "this machine get a secret of their own for their meeting; with --hosts, set TFSCALE_SECRET alike on every host."
)

_OFTEN_MEANT = ("--workers", "--hosts", "--replicas-per-worker", "--cores-per-worker", "--max-restarts")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the subcommand to its parser."""
    parser.add_argument("--workers", type=_count, metavar="N", help="workers to start on this machine (default: 1)")
    parser.add_argument(
        "--hosts",
        metavar="HOST:PORT,...",
        help="one address per worker, in the order of their ranks; n[01-04] names four. Run the same command on every "
        f"host: each starts its own workers, and restarts them by itself. Without ports: {DEFAULT_PORT} and up",
    )
    parser.add_argument(
        "--rank",
        type=_index,
        metavar="R",
        help="with --hosts: start this worker only (default: all whose host is this one)",
    )
    parser.add_argument(
        "--replicas-per-worker",
        type=_count,
        metavar="N",
        help="GPUs for each worker of this host (default: all, divided evenly); without GPUs a worker has one replica",
    )
    parser.add_argument(
        "--cores-per-worker",
        type=_count,
        metavar="N",
        help="cores for each worker of this host (default: all, divided evenly)",
    )
    parser.add_argument(
        "--max-restarts", type=_index, default=0, metavar="K", help="start all again when one fails (default: 0 times)"
    )
    parser.add_argument("--log-dir", type=Path, metavar="DIR", help="keep each worker's output in DIR/worker-RANK.log")
    parser.add_argument("--dry-run", action="store_true", help="print each worker's command, and start nothing")
    parser.add_argument(
        "--json", action="store_true", help="print JSON of how it ended; the workers' lines go to standard error"
    )
    parser.add_argument(
        "--isolate-network", action="store_true", help="a network of their own for workers on this machine (Linux)"
    )
    parser.add_argument(
        "-m", "--module", action="store_true", help="SCRIPT is the name of a module, as for `python -m`"
    )
    add_manifest_flags(parser)
    parser.add_argument(
        "script",
        metavar="SCRIPT",
        help="the Python script that every worker runs; flags of the launcher stand before it",
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="what the script gets")


def meant_for_the_launcher(args: argparse.Namespace) -> list[str]:
    """Returns the words behind the script that name a flag of the launcher's, with its value, which was not given.

    They are the script's, which may have such a flag; more often two workers are wanted, and one trains.

    Example:
        >>> import argparse
        >>> from tfscale.launch.flags import add_flags, meant_for_the_launcher
        >>> parser = argparse.ArgumentParser()
        >>> add_flags(parser)
        >>> meant_for_the_launcher(parser.parse_args(["train.py", "--epochs", "9", "--workers", "2"]))
        ['--workers', '2']
        >>> meant_for_the_launcher(parser.parse_args(["--workers", "3", "train.py", "--workers", "2"]))
        []
    """
    words: list[str] = []
    for index, word in enumerate(args.arguments):
        name, sign, _ = word.partition("=")
        if name in _OFTEN_MEANT and not getattr(args, name.removeprefix("--").replace("-", "_")):
            words += args.arguments[index : index + (1 if sign else 2)]
    return words


def add_manifest_flags(parser: argparse.ArgumentParser) -> None:
    """Adds those with which nothing is started."""
    group = parser.add_argument_group(
        "Kubernetes", "Print a manifest for `kubectl apply -f -`, and start nothing; SCRIPT is a path in the image."
    )
    group.add_argument(
        "--kubernetes", action="store_true", help="an Indexed Job of --workers pods, and the Service that they meet by"
    )
    group.add_argument("--jobset", action="store_true", help="a JobSet instead, where its operator is installed")
    group.add_argument("--image", metavar="IMAGE", help="the image with the script, Python and tfscale in it")
    group.add_argument("--gpus", type=_index, metavar="N", help="GPUs of each pod (default: none)")
    group.add_argument("--volume", metavar="CLAIM:PATH", help="a PersistentVolumeClaim, and where it is mounted")
    group.add_argument("--name", metavar="NAME", help="of the job (default: after the script)")


def _count(text: str) -> int:
    return _integer(text, 1, "a positive integer")


def _index(text: str) -> int:
    return _integer(text, 0, "an integer of 0 or more")


def _integer(text: str, least: int, rule: str) -> int:
    number = int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else -1
    if number < least:
        raise argparse.ArgumentTypeError(f"must be {rule}. Received: {quoted(text)}")
    return number
