"""How does the first step grow with the number of replicas? tfscale, traced once and by each, and plain Keras, in turn.

The exit status is 1 when both ways of tfscale have not trained the same.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import math
import sys
import time
from collections.abc import Sequence

from benchmarks.first_step.plan import MODELS, WAYS, Growth
from benchmarks.first_step.report import Cell, Table, legend
from benchmarks.table import machine_facts
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
    start_s = time.monotonic()
    cells: list[Cell] = list(itertools.product(options.model, options.replicas, options.way))
    found: dict[Cell, list[Growth]] = {cell: [] for cell in cells}
    # Rounds outside: what else the machine does meets all alike.
    for number, cell in itertools.product(range(options.rounds), cells):
        if number and time.monotonic() - start_s > 60 * options.minutes:
            break
        found[cell].append(run_case("benchmarks.first_step.measure:measure", args=cell, timeout_s=_TIMEOUT_S))
        growth = found[cell][-1]
        print(
            f"[{time.monotonic() - start_s:4.0f} s] {cell}: {growth.first_s:.1f} s, CPU {growth.first_cpu_s:.1f} s",
            file=sys.stderr,
            flush=True,
        )
    table, facts = Table(found), machine_facts()
    versions = ", ".join(f"{name} {version}" for name, version in found[cells[0]][0].versions.items())
    print(f"{datetime.date.today()}, {facts['num_cpus']} CPU(s), {facts['system']}: {versions}.")
    print(f"{legend()}\n\n{table.render()}")
    for fault in table.faults():
        print(fault, file=sys.stderr)
    return int(bool(table.faults()))


if __name__ == "__main__":
    sys.exit(main())
