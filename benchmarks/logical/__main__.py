"""What do logical replicas cost beside `micro_batch` and beside none, and `deterministic` on top? Ways in turn.

The exit status is 1 when not all ways have trained the same, or deterministic runs have not the same bits.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import math
import sys
import time
from collections.abc import Sequence

from benchmarks.logical.plan import MODELS, WAYS, Cost
from benchmarks.logical.report import Cell, Table, legend
from benchmarks.table import machine_facts
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
    start_s = time.monotonic()
    cells: list[Cell] = list(itertools.product(options.model, options.replicas, options.way))
    found: dict[Cell, list[Cost]] = {cell: [] for cell in cells}
    # Rounds outside: what else the machine does meets all alike.
    for number, cell in itertools.product(range(options.rounds), cells):
        if number and time.monotonic() - start_s > 60 * options.minutes:
            break
        found[cell].append(run_case("benchmarks.logical.measure:measure", args=cell, timeout_s=_TIMEOUT_S))
        step_ms = 1000 * found[cell][-1].step_s
        print(f"[{time.monotonic() - start_s:4.0f} s] {cell}: {step_ms:.1f} ms", file=sys.stderr, flush=True)
    table, facts = Table(found), machine_facts()
    versions = ", ".join(f"{name} {version}" for name, version in found[cells[0]][0].versions.items())
    print(f"{datetime.date.today()}, {facts['num_cpus']} CPU(s), {facts['system']}: {versions}.")
    print(f"{legend()}\n\n{table.render()}")
    for fault in table.faults():
        print(fault, file=sys.stderr)
    return int(bool(table.faults()))


if __name__ == "__main__":
    sys.exit(main())
