"""`tfscale verify`: the command line's way to `verify`."""

import argparse
import sys

from tfscale.parity.run_spec import RunSpec
from tfscale.parity.verification import verify


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand.

    Args:
        args: With `build`, `data`, `replicas`, `workers`, `epochs`, `global_batch` and `against`.

    Returns:
        The exit status: 0 when every run through tfscale is equal to the reference, else 1.
    """
    report = verify(
        args.build,
        args.data,
        num_replicas=args.replicas,
        workers=args.workers,
        global_batch=args.global_batch,
        epochs=args.epochs,
        against=args.against,
        on_start=_show_progress,
    )
    return 0 if report.equal else 1


def _show_progress(run: RunSpec) -> None:
    print(f"running {run}", file=sys.stderr, flush=True)
