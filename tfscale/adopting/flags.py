"""The flags of `tfscale init`."""

from __future__ import annotations

import argparse

DESCRIPTION = (
    "Show, as a diff, the lines to add to a Keras script that knows nothing of tfscale. Nothing of it is run, and "
    "nothing is changed without --write. What cannot be placed is said, and then nothing is written."
)
_MOST = 10**15


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the subcommand to its parser."""
    parser.add_argument("script", metavar="SCRIPT", help="the Python file")
    parser.add_argument("--write", action="store_true", help="write the lines into the script")
    parser.add_argument(
        "--global-batch", type=_count, metavar="EXAMPLES", help="examples per step (default: found in the script)"
    )
    parser.add_argument(
        "--simulate", type=_count, metavar="N", help="train on N logical CPU devices, for a machine without GPUs"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _count(text: str) -> int:
    count = int(text) if text.isdecimal() and text.isascii() and len(text) < 17 else 0
    if not 1 <= count <= _MOST:
        raise argparse.ArgumentTypeError(f"must be a positive integer, at most 1e+15. Received: {text[:100]!r}")
    return count
