"""How does the first step grow with the number of replicas? tfscale, traced once and by each, and plain Keras, in turn.

The exit status is 1 when both ways of tfscale have not trained the same.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Sequence

from benchmarks.first_step.plan import MODELS, WAYS, Growth
from benchmarks.first_step.report import Cell, Table, legend
from benchmarks.rounds import conclude, in_turn
from tests.processes import run_case

_TIMEOUT_S = 400.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_step", description=__doc__)
    parser.add_argument("--model", choices=MODELS, nargs="+", default=list(MODELS))
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4, 8], help="numbers of replicas")
    parser.add_argument("--way", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=3, help="first steps of each kind, in turn")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing after the first round by then")
    options = parser.parse_args(arguments)
    found: dict[Cell, list[Growth]] = in_turn(
        list(itertools.product(options.model, options.replicas, options.way)),
        # A process that was forked does not count what of the libraries its parent has read: a third of its memory.
        lambda cell, number: run_case(
            "benchmarks.first_step.measure:measure", args=cell, timeout_s=_TIMEOUT_S, fresh=True
        ),
        rounds=options.rounds,
        minutes=options.minutes,
        say=lambda growth: f"{growth.first_s:.1f} s, CPU {growth.first_cpu_s:.1f} s",
    )
    table = Table(found)
    versions = next(iter(found.values()))[0].versions
    return conclude(versions, f"{legend()}\n\n{table.render()}", table.faults())


if __name__ == "__main__":
    sys.exit(main())
