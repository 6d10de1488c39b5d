"""The flags of `tfscale sweep`."""

from __future__ import annotations

import argparse

DESCRIPTION = (
    "Call your function with many settings, each in a process of its own, as many at a time as there are devices, and "
    "find the one with the best result. A sweep that was killed goes on where it was; what fails is a row."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the subcommand to its parser."""
    parser.add_argument("--space", required=True, metavar="FILE", help="space.yaml, space.json, or space.py:SPACE")
    parser.add_argument("--trials", type=_count, default=20, metavar="N", help="in all (default: 20)")
    parser.add_argument("--at-a-time", type=_count, metavar="N", help="side by side (default: GPUs, or cores)")
    parser.add_argument("--sampler", choices=("random", "optuna"), default="random", help="(default: random)")
    parser.add_argument("--prune", action="store_true", help="end a trial that is behind the median of the others")
    parser.add_argument("--direction", choices=("min", "max"), default="min", help="what is best (default: min)")
    parser.add_argument("--directory", default="sweep", metavar="DIR", help="of the sweep (default: sweep)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is drawn (default: 0)")
    parser.add_argument(
        "--shared", action="store_true", help="other hosts run this command in the same directory at the same time"
    )
    parser.add_argument(
        "--silent-s", type=float, default=60.0, metavar="S", help="with --shared: when a silent host is gone (60)"
    )
    parser.add_argument("--timeout-s", type=float, default=86400.0, metavar="S", help="of a trial (default: a day)")
    parser.add_argument(
        "--show-output", action="store_true", help="show what the trials write, each line after its trial's number"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--no-picture", action="store_true", help="draw no sweep.png")
    parser.add_argument("--carry-to", type=_count, metavar="N", help="print the best recipe re-derived for N replicas")
    parser.add_argument("--batch", type=_count, metavar="N", help="with --carry-to: the batch, if not in the space")
    parser.add_argument("--examples", type=_count, metavar="N", help="with --carry-to: examples in an epoch")
    parser.add_argument("--optimizer", default="sgd", metavar="NAME", help="with --carry-to (default: sgd)")


def _count(text: str) -> int:
    count = int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, such as 2. Received: {text[:100]!r}")
    return count
