"""The flags of `tfscale doctor`."""

import argparse

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
    # What is no number of seconds is refused where all that wait read theirs (`read_timeout_s`).
    parser.add_argument(
        "--timeout-s",
        metavar="SECONDS",
        help="how long to wait for the other workers of the job (default: TFSCALE_TIMEOUT_S, or 120)",
    )
