"""`tfscale verify`: the command line's way to `verify`."""

import argparse
import json
import os
import sys

from tfscale.console.screen import Progress, is_rich, show_table
from tfscale.parity.report import HEADER, ParityReport, cells_of
from tfscale.parity.run_spec import RunSpec
from tfscale.parity.verification import verify


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand.

    Args:
        args: With `build`, `data`, `replicas`, `workers`, `epochs`, `global_batch`, `against` and `json`.

    Returns:
        The exit status: 0 when every run through tfscale is equal to the reference, else 1.
    """
    with Progress() as progress:

        def begin(spec: RunSpec) -> None:
            progress.begin(str(spec))

        report = verify(
            args.build,
            args.data,
            num_replicas=args.replicas,
            workers=args.workers,
            global_batch=args.global_batch,
            epochs=args.epochs,
            against=args.against,
            on_start=begin,
            on_report=lambda report: None,
        )
    _show(report, as_json=args.json)
    return 0 if report.equal else 1


def _show(report: ParityReport, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.to_dict(), indent=1))
    elif is_rich(sys.stdout, os.environ):
        show_table(report.title, HEADER, cells_of(report.rows), report.below())
    else:
        print(report)
