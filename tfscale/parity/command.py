"""`tfscale verify`: the command line's way to `verify` and `verify_bitwise`."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence

from tfscale.console.screen import Progress, is_rich, show_table
from tfscale.errors import ParityError
from tfscale.parity.bitwise import LOGICAL_REPLICAS, verify_bitwise
from tfscale.parity.bitwise_report import BITWISE_HEADER, BitwiseReport
from tfscale.parity.report import HEADER, ParityReport, cells_of
from tfscale.parity.run_spec import RunSpec, choose_runs
from tfscale.parity.verification import verify

_REPLICAS = (1, 2, 3)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand.

    Args:
        args: With `build`, `data`, `replicas`, `workers`, `epochs`, `global_batch`, `against`, `bitwise`,
            `logical_replicas` and `json`.

    Returns:
        The exit status: 0 when every run through tfscale is equal to the reference, else 1.
    """
    _check_together(args)
    with Progress(_count(args)) as progress:

        def begin(spec: RunSpec) -> None:
            progress.begin(str(spec))

        report = _verify_bitwise(args, begin) if args.bitwise else _verify(args, begin)
    if args.json:
        print(json.dumps(report.to_dict(), indent=1))
    elif is_rich(sys.stdout, os.environ):
        header, cells = _table(report)
        show_table(report.title, header, cells, report.below())
    else:
        print(report)
    return 0 if report.equal else 1


def _count(args: argparse.Namespace) -> int | None:
    """Runs to come, with the reference; None where `--bitwise` decides how many it takes."""
    if args.bitwise:
        return None
    return 1 + len(choose_runs(args.replicas or _REPLICAS, workers=args.workers, against=args.against))


def _check_together(args: argparse.Namespace) -> None:
    if args.bitwise and args.against:
        raise ParityError(
            "`--bitwise` compares runs of tfscale with each other: plain Keras has no logical replicas.\n"
            f"Received: --bitwise and --against {args.against}. Leave one of them out."
        )
    if args.logical_replicas is not None and not args.bitwise:
        raise ParityError(
            "`--logical-replicas` is of `--bitwise`: without it runs are compared with plain Keras on one device.\n"
            f"Received: --logical-replicas {args.logical_replicas}. Add --bitwise, or leave it out."
        )


def _verify(args: argparse.Namespace, begin: Callable[[RunSpec], None]) -> ParityReport:
    return verify(
        args.build,
        args.data,
        num_replicas=args.replicas or _REPLICAS,
        workers=args.workers,
        global_batch=args.global_batch,
        epochs=args.epochs,
        against=args.against,
        on_start=begin,
        on_report=lambda report: None,
    )


def _verify_bitwise(args: argparse.Namespace, begin: Callable[[RunSpec], None]) -> BitwiseReport:
    return verify_bitwise(
        args.build,
        args.data,
        logical_replicas=args.logical_replicas or LOGICAL_REPLICAS,
        num_replicas=args.replicas,
        workers=args.workers,
        global_batch=args.global_batch,
        epochs=args.epochs,
        on_start=begin,
        on_report=lambda report: None,
    )


def _table(report: ParityReport | BitwiseReport) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
    if isinstance(report, BitwiseReport):
        return BITWISE_HEADER, report.cells()
    return HEADER, cells_of(report.rows)
