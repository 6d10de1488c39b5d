"""What does the check of the first step cost? The first `fit`, without it and with it, in turn.

The exit status is 1 when a check was not made that should have been, or changed the step.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from benchmarks.check.plan import MODELS, NUM_REPLICAS, WITH, WITHOUT, FirstStep
from benchmarks.check.report import Row, legend, render
from benchmarks.rounds import conclude, in_turn
from tests.processes import run_case

_TIMEOUT_S = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description=__doc__)
    parser.add_argument("--model", choices=MODELS, nargs="+", default=list(MODELS))
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4], help="numbers of replicas")
    parser.add_argument("--rounds", type=int, default=3, help="first steps of each kind, in turn")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing after the first round by then")
    parser.add_argument("--fresh", action="store_true", help="import TensorFlow in each process: no forks")
    options = parser.parse_args(arguments)
    pairs = in_turn(
        [(model, n) for model in options.model for n in NUM_REPLICAS[model] if n in options.replicas],
        lambda cell, number: _pair(*cell, number, fresh=options.fresh),
        rounds=options.rounds,
        minutes=options.minutes,
        say=lambda pair: f"{pair[0].seconds:.2f} s, {pair[1].seconds:.2f} s",
    )
    rows = [Row(*cell, tuple(found)) for cell, found in pairs.items()]
    faults = [fault for row in rows for fault in row.faults()]
    return conclude(rows[0].rounds[0][0].versions, f"{legend()}\n\n{render(rows)}", faults)


def _pair(model: str, num_replicas: int, number: int, *, fresh: bool) -> tuple[FirstStep, FirstStep]:
    """A first step without the check and one with it; each goes first as often as the other, or once more."""
    found: dict[str, FirstStep] = {}
    for check in (WITHOUT, WITH) if number % 2 == 0 else (WITH, WITHOUT):
        found[check] = run_case(
            "benchmarks.check.first_step:measure",
            args=(model, num_replicas, check),
            timeout_s=_TIMEOUT_S,
            fresh=fresh,
        )
    return found[WITHOUT], found[WITH]


if __name__ == "__main__":
    sys.exit(main())
