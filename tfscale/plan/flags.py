"""The flags that `tfscale plan` has for what was measured."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tfscale.errors import MeasureError

_OF_TIME = ("link", "latency", "step_times", "parameters", "micro_batch")
# What is used beside the flag that says what is wanted.
_USED = {
    "check": (*_OF_TIME, "goal", "json"),
    "noise": (
        *(*_OF_TIME, "study", "calibrate", "critical_batch", "replicas", "per_replica_batch", "run_steps"),
        *("price_per_hour", "json"),
    ),
}
_ONLY_FORETELLING = ("study", "calibrate", "link", "latency", "step_times", "parameters", "run_steps", "price_per_hour")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds them to the parser of the subcommand."""
    group = parser.add_argument_group("foretelling from measurements")
    group.add_argument("--noise", action="append", metavar="TRACE.CSV", help="as `tfscale measure` writes; repeatable")
    group.add_argument("--study", metavar="DIR", help="of `tfscale study`: its critical batch in place of the band's")
    group.add_argument(
        "--calibrate",
        nargs=2,
        metavar=("BUILD", "DATA"),
        help="train branches with grown batches, for the critical one: some 6 times 320 steps, with 3 seeds",
    )
    group.add_argument(
        "--link",
        metavar="RATE|DIR",
        help="between replicas: 25gbit, 110MB/s, nvlink, or the directory of a run that has measured one",
    )
    group.add_argument("--latency", metavar="TIME", help="of an all-reduce of two (default: 50us)")
    group.add_argument("--step-times", metavar="N:TIME,...", help="of one replica, as 16:12ms,32:15ms,64:22ms,128:37ms")
    group.add_argument("--parameters", type=int, metavar="N", help="numbers in a gradient (default: as measured)")
    group.add_argument("--run-steps", type=int, metavar="N", help="of the run at its batch (default: the trace's)")
    group.add_argument(
        "--check",
        nargs="+",
        metavar="DIR",
        help="finished runs: what came true, foretold from the first one's trace; --link too",
    )
    group.add_argument("--goal", type=float, metavar="LOSS", help="with --check (default: what all have reached)")
    group.add_argument("--price-per-hour", type=float, metavar="X", help="of one replica, for the cost")


def check_flags(args: argparse.Namespace, defaults: Mapping[str, Any]) -> None:
    """Refuses flags that would be ignored.

    Args:
        args: As parsed.
        defaults: Of all flags of the subcommand.

    Raises:
        MeasureError: Naming them.
    """
    given = [name for name, default in defaults.items() if getattr(args, name) != default]
    wanted = next((name for name in _USED if name in given), None)
    if wanted is None:
        unused = [name for name in given if name in (*_ONLY_FORETELLING, "goal")]
        way_out = "Give --check with --goal, and --noise with the others." if unused else ""
    else:
        unused = [name for name in given if name not in (wanted, *_USED[wanted])]
        way_out = f"Leave out what `plan --{wanted}` does not use."
    if unused:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        with_what = "without measurements" if wanted is None else f"with --{wanted}"
        raise MeasureError(f"A plan must be given what it uses.\nReceived: {flags} {with_what}. {way_out}")
    if args.calibrate is not None and args.micro_batch is not None:
        raise MeasureError(
            "Branches take their batches in one pass.\n"
            f"Received: --calibrate with --micro-batch {args.micro_batch}. Calibrate without it, and give what that "
            "tells as --critical-batch."
        )
