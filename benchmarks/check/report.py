"""The pairs of first steps as a table, and whether they are what was to be compared."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from benchmarks.check.plan import BATCH, MODELS, WITH, WITHOUT, FirstStep
from benchmarks.contenders import OPTIMIZER
from benchmarks.table import ruled

_HEADER = ("model", "N", "A, s", "B, s", "B / A", "check, s", "A, CPU s", "B, CPU s", "B / A, CPU", "rounds")


@dataclasses.dataclass(frozen=True)
class Row:
    """One model on N replicas: each round is a first step without the check and one with it."""

    model: str
    num_replicas: int
    rounds: tuple[tuple[FirstStep, FirstStep], ...]

    def faults(self) -> list[str]:
        """Why the two sides are not what the table says; empty when they are."""
        found = []
        due = int(self.num_replicas > 1)
        for without, checked in self.rounds:
            if (len(without.check_s), len(checked.check_s)) != (0, due):
                found.append(f"{len(without.check_s)} and {len(checked.check_s)} checks, not 0 and {due}")
            # The check puts back what it has changed. Rounding differs from run to run.
            if not math.isclose(without.loss, checked.loss, rel_tol=1e-5):
                found.append(f"a loss of {checked.loss} with the check, {without.loss} without")
            found += [message for message in checked.messages if "could not be checked" in message]
        return [f"{self.model}, {self.num_replicas} replica(s): {fault}" for fault in dict.fromkeys(found)]

    def cells(self) -> tuple[str, ...]:
        """As they are printed: medians over the rounds, with the least and the greatest."""
        pairs = self.rounds
        return (
            MODELS[self.model],
            str(self.num_replicas),
            _spread([without.seconds for without, _ in pairs]),
            _spread([checked.seconds for _, checked in pairs]),
            _spread([checked.seconds / without.seconds for without, checked in pairs]),
            f"{statistics.median(sum(checked.check_s) for _, checked in pairs):.2f}",
            f"{statistics.median(without.cpu_s for without, _ in pairs):.2f}",
            f"{statistics.median(checked.cpu_s for _, checked in pairs):.2f}",
            _spread([checked.cpu_s / without.cpu_s for without, checked in pairs]),
            str(len(pairs)),
        )


def render(rows: Sequence[Row]) -> str:
    """The table."""
    return ruled(_HEADER, (row.cells() for row in rows))


def legend() -> str:
    """What is compared, in words."""
    return "\n".join(
        [
            f"The first `fit` of a process, one step of {BATCH} rows divided over N logical CPUs, {OPTIMIZER},",
            "accuracy: tracing included, building not.",
            f'A: dp.prepare(model, check="{WITHOUT}"). B: dp.prepare(model, check="{WITH}").',
            "A process for each A and each B, in turn. Median [least .. greatest]; ratios within a round.",
            "check: the part of B that is the check, on the clock; CPU: processor time of all threads.",
            "On one replica there is nothing to be checked: those rows show the noise.",
        ]
    )


def _spread(values: Sequence[float]) -> str:
    median = f"{statistics.median(values):.2f}"
    # One round has no spread, and must not look as if it had been found to be none.
    return median if len(values) == 1 else f"{median} [{min(values):.2f} .. {max(values):.2f}]"
