"""The first steps as a table, and whether all ways have trained the same."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.contenders import OPTIMIZER
from benchmarks.first_step.plan import EACH, KERAS, MODELS, ONCE, PER_REPLICA_BATCH, STEPS, WAYS, Growth
from benchmarks.table import ruled

_HEADER = (
    *("model", "N", "way", "first, s", "first, CPU s", "of its N = 1", "of Keras", "step, ms", "evaluate", "predict"),
    *("nodes", "MB", "rounds"),
)
Cell = tuple[str, int, str]


@dataclasses.dataclass(frozen=True)
class Table:
    """What was found, by model, number of replicas and way; of each as many rounds as there was time for."""

    found: Mapping[Cell, Sequence[Growth]]

    def faults(self) -> list[str]:
        """Where the ways of tfscale have not trained the same; empty when they have."""
        faults = []
        for model, n in dict.fromkeys((model, n) for model, n, _ in self.found):
            losses = [each.loss for way in (ONCE, EACH) for each in self.found.get((model, n, way), ())]
            if losses and not math.isclose(min(losses), max(losses), rel_tol=1e-4):
                faults.append(f"{MODELS[model]}, {n} replica(s): losses of {min(losses)} to {max(losses)}")
        return faults

    def render(self) -> str:
        """The table."""
        return ruled(_HEADER, map(self._cells, self.found))

    def _cells(self, cell: Cell) -> tuple[str, ...]:
        model, n, way = cell
        rounds = self.found[cell]
        return (
            MODELS[model],
            str(n),
            WAYS[way],
            f"{statistics.median(each.first_s for each in rounds):.1f}",
            f"{self._cpu_s(cell):.1f}",
            self._ratio(cell, (model, 1, way)),
            self._ratio(cell, (model, n, KERAS)),
            f"{1000 * statistics.median(each.step_s for each in rounds):.0f}",
            f"{statistics.median(each.evaluate_cpu_s for each in rounds):.1f}",
            f"{statistics.median(each.predict_cpu_s for each in rounds):.1f}",
            f"{rounds[0].num_nodes:,}",
            f"{statistics.median(each.peak_mb for each in rounds):,.0f}",
            str(len(rounds)),
        )

    def _cpu_s(self, cell: Cell) -> float:
        return statistics.median(each.first_cpu_s for each in self.found[cell])

    def _ratio(self, cell: Cell, to: Cell) -> str:
        return f"{self._cpu_s(cell) / self._cpu_s(to):.2f}" if to in self.found else ""


def legend() -> str:
    """What is compared, in words."""
    return "\n".join(
        [
            f"The first `fit` of a process: {PER_REPLICA_BATCH} rows for each of N logical CPUs, {OPTIMIZER}, local",
            f"BatchNormalization, {STEPS} steps; a process for each cell, ways in turn, medians of the rounds.",
            "first: its first step, tracing included, building not; evaluate, predict: CPU seconds of the first call.",
            "The two ratios are of processor time: to the same way on one replica, and to plain Keras on as many.",
            "nodes: operations of the largest graph, with those of the functions that it calls, once each.",
        ]
    )
