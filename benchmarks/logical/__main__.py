"""What do logical replicas cost beside `micro_batch` and beside none, and `deterministic` on top? Ways in turn.

The exit status is 1 when not all ways have trained the same, or deterministic runs have not the same bits.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Sequence

from benchmarks.logical.plan import MODELS, WAYS, Cost
from benchmarks.logical.report import Cell, Table, legend
from benchmarks.rounds import conclude, in_turn
from tests.processes import run_case

_TIMEOUT_S = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.logical", description=__doc__)
    parser.add_argument("--model", choices=MODELS, nargs="+", default=list(MODELS))
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4, 8], help="numbers of devices")
    parser.add_argument("--way", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind, in turn")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing after the first round by then")
    options = parser.parse_args(arguments)
    found: dict[Cell, list[Cost]] = in_turn(
        list(itertools.product(options.model, options.replicas, options.way)),
        lambda cell, number: run_case("benchmarks.logical.measure:measure", args=cell, timeout_s=_TIMEOUT_S),
        rounds=options.rounds,
        minutes=options.minutes,
        say=lambda cost: f"{1000 * cost.step_s:.1f} ms",
    )
    table = Table(found)
    versions = next(iter(found.values()))[0].versions
    return conclude(versions, f"{legend()}\n\n{table.render()}", table.faults())


if __name__ == "__main__":
    sys.exit(main())
