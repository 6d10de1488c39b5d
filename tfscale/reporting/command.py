"""`tfscale report`: reads a run's directory and writes its page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tfscale.errors import ReportError
from tfscale.reporting.page import facts_of, page_of
from tfscale.reporting.reading import read_run


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand.

    Args:
        args: As `tfscale report --help` has them.

    Returns:
        The exit status: 0, or 1 when a file of the run could not be read.

    Raises:
        ReportError: When there is nothing of a run, or the page cannot be written.
    """
    found = read_run(Path(args.directory))
    path = Path(args.output) if args.output else found.directory / "report.html"
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(page_of(found), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise ReportError(
            f"The page must be written somewhere.\nReceived: {str(path)!r:.300}: {error.strerror}. Give --output FILE."
        ) from error
    if args.json:
        print(json.dumps({**facts_of(found), "page": str(path)}, indent=1))
    else:
        print(f"Written: {path}")
    for each in found.problems:
        print(f"Could not be read: {each}", file=sys.stderr)
    return 1 if found.problems else 0
