"""The flags that `tfscale plan` has for what was measured."""

from __future__ import annotations

import argparse


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
    group.add_argument("--link", metavar="RATE", help="between replicas: 25gbit, 110MB/s or nvlink")
    group.add_argument("--latency", metavar="TIME", help="of an all-reduce of two (default: 50us)")
    group.add_argument("--step-times", metavar="N:TIME,...", help="of one replica, as 16:12ms,32:15ms,64:22ms,128:37ms")
    group.add_argument("--parameters", type=int, metavar="N", help="numbers in a gradient (default: as measured)")
    group.add_argument("--run-steps", type=int, metavar="N", help="of the run at its batch (default: the trace's)")
    group.add_argument(
        "--check", nargs="+", metavar="DIR", help="finished runs: what came true, foretold from the first one's trace"
    )
    group.add_argument("--goal", type=float, metavar="LOSS", help="with --check (default: what all have reached)")
    group.add_argument("--price-per-hour", type=float, metavar="X", help="of one replica, for the cost")
