"""The flags of `tfscale study`."""

from __future__ import annotations

import argparse

DESCRIPTION = (
    "Train your model to a target at many batches, with equal trials of the rate at each, and fit the steps: up to "
    "which batch do more replicas pay? Each trial is a process; a study that was killed goes on where it was."
)
EPILOG = (
    "BUILD takes a rate, as `def build(rate=0.1)`, and may take the batch and what else is searched. DATA returns "
    "arrays."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the subcommand to its parser."""
    parser.add_argument("--target", required=True, metavar="METRIC=VALUE", help="such as val_accuracy=0.95 or loss<0.1")
    parser.add_argument("--batches", required=True, metavar="N..N", help="16..1024, or 16,64,256")
    parser.add_argument("--directory", required=True, metavar="DIR", help="of the study; it goes on with what is there")
    parser.add_argument("--trials", type=_count, default=12, metavar="N", help="points at each batch (default: 12)")
    parser.add_argument("--seeds", type=_count, default=3, metavar="N", help="seeds of the better half (default: 3)")
    parser.add_argument(
        "--search", default="rate", metavar="NAME,...", help="what is searched; the first is the rate (default: rate)"
    )
    parser.add_argument(
        "--rule",
        choices=("linear", "sqrt", "none"),
        default="sqrt",
        help="how the rates grow (default: sqrt)",
    )
    parser.add_argument(
        "--reference-batch",
        type=_count,
        metavar="N",
        help="where the rate of BUILD holds (default: the middle)",
    )
    parser.add_argument("--budget-epochs", type=_count, default=50, metavar="N", help="most passes (default: 50)")
    parser.add_argument("--budget-hours", type=float, metavar="H", help="after which no trial is begun")
    parser.add_argument("--micro-batch", type=_count, metavar="N", help="most examples of one pass")
    parser.add_argument("--at-a-time", type=_count, metavar="N", help="trials side by side (default: GPUs, or cores)")
    parser.add_argument(
        "--engine",
        choices=("processes", "optuna", "ray"),
        default="processes",
        help=(
            "who runs the trials: processes of this host; those of each host that is told `optuna` and sees DIR, with "
            "a journal for optuna-dashboard; or the tasks of a Ray cluster (default: processes)"
        ),
    )
    parser.add_argument(
        "--silent-s",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="after which another host of --engine optuna is gone, and its trials are run again (default: 60)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--no-report", action="store_true", help="write no picture and no page")


def _count(text: str) -> int:
    count = int(text) if text.isdecimal() and text.isascii() else 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, such as 2. Received: {text[:100]!r}")
    return count


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1e9:
        raise argparse.ArgumentTypeError(f"must be seconds, above 0. Received: {text[:100]!r}")
    return seconds
