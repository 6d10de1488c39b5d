"""The flags of `tfscale doctor`."""

import argparse
import math

DESCRIPTION = (
    "Look at versions, TensorFlow, GPUs, NCCL, driver, cluster variables, host names, ports, threads and free space, "
    "and say of each what is wrong and what to do. As a worker of a job, also meet the other workers, add known "
    "numbers over all replicas, and time it: run it on all workers, as `tfscale launch --workers 2 -m tfscale doctor`; "
    "the chief prints everything, the others what is wrong with them."
)
EPILOG = "TensorFlow runs in a process of its own, and may be absent or broken."


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the subcommand to its parser."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--timeout-s",
        type=_seconds,
        metavar="SECONDS",
        help="how long to wait for the other workers of the job (default: TFSCALE_TIMEOUT_S, or 120)",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, such as 30. Received: {text[:100]!r}")
    return seconds
