"""The flags of `tfscale report`."""

from __future__ import annotations

import argparse

DESCRIPTION = (
    "Write one page of HTML about a run, from the files that `dp.callbacks(DIRECTORY)` left there: curves, rate, "
    "batch, speed, noise scale, recoveries, where the time went, what was derived. No network, no server."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the subcommand to its parser."""
    parser.add_argument("directory", metavar="DIRECTORY", help="of the run, as given to `dp.callbacks`")
    parser.add_argument("--output", metavar="FILE", help="where to (default: report.html in the directory)")
    parser.add_argument("--json", action="store_true", help="print the facts of the page as JSON, too")
