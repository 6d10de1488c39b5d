"""Measurements that are compared: one of each kind in every round, and what is printed of them at the end."""

from __future__ import annotations

import datetime
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from benchmarks.table import machine_facts

Cell = TypeVar("Cell")
Found = TypeVar("Found")


def in_turn(
    cells: Sequence[Cell],
    measure: Callable[[Cell, int], Found],
    *,
    rounds: int,
    say: Callable[[Found], str],
    minutes: float = math.inf,
) -> dict[Cell, list[Found]]:
    """What was measured, by kind; rounds are outside, so that what else the machine does meets all kinds alike.

    Args:
        cells: The kinds.
        measure: Given a kind and the number of the round.
        rounds: How often.
        say: What is told of a measurement as it comes.
        minutes: After these nothing is begun, once the first round is whole.
    """
    start_s = time.monotonic()
    found: dict[Cell, list[Found]] = {cell: [] for cell in cells}
    for number, cell in itertools.product(range(rounds), cells):
        if number and time.monotonic() - start_s > 60 * minutes:
            break
        found[cell].append(measure(cell, number))
        tell(f"[{time.monotonic() - start_s:4.0f} s] {cell}: {say(found[cell][-1])}")
    return found


def conclude(versions: Mapping[str, str], report: str, faults: Iterable[str]) -> int:
    """Prints the report under the day, the machine and the versions; returns the exit status."""
    facts = machine_facts()
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    print(f"{datetime.date.today()}, {facts['num_cpus']} CPU(s), {facts['system']}: {packages}.")
    print(report)
    found = list(faults)
    for fault in found:
        tell(fault)
    return int(bool(found))


def tell(text: str) -> None:
    """Progress; the table alone goes to the standard output."""
    print(text, file=sys.stderr, flush=True)
