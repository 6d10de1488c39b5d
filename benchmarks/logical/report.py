"""The costs as a table, and whether all ways have trained the same."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.logical.plan import BITS, LOGICAL, MICRO, MODELS, NONE, ROWS, STEPS, WAYS, WITH, Cost
from benchmarks.table import ruled

_HEADER = (
    *("model", "N", "way", "step, ms", "of no logical replicas", "of micro_batch", "of not deterministic"),
    *("CPU, ms", "of none", "first, s", "MB", "rounds"),
)
Cell = tuple[str, int, str]


@dataclasses.dataclass(frozen=True)
class Table:
    """What was found, by model, number of devices and way; one of each in every round, as far as there was time."""

    found: Mapping[Cell, Sequence[Cost]]

    def faults(self) -> list[str]:
        """Where losses are not the same, and where the bits of deterministic runs are not; empty when all are."""
        faults = []
        for model in dict.fromkeys(model for model, _, _ in self.found):
            cells = [cell for cell in self.found if cell[0] == model]
            losses = [each.loss for cell in cells for each in self.found[cell]]
            if losses and not math.isclose(min(losses), max(losses), rel_tol=1e-4):
                faults.append(f"{MODELS[model]}: losses of {min(losses)} to {max(losses)}")
            digests = {each.digest for cell in cells if cell[2] == BITS for each in self.found[cell]}
            if len(digests) > 1:
                faults.append(f"{MODELS[model]}: deterministic runs have ended in {len(digests)} states")
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
            f"{1000 * statistics.median(each.step_s for each in rounds):.1f}",
            self._ratio(cell, NONE),
            self._ratio(cell, MICRO),
            self._ratio(cell, WITH) if way == BITS else "",
            f"{1000 * statistics.median(each.cpu_s for each in rounds):.0f}",
            self._cpu_ratio(cell),
            f"{statistics.median(each.first_s for each in rounds):.1f}",
            f"{statistics.median(each.peak_mb for each in rounds):,.0f}",
            str(len(rounds)),
        )

    def _ratio(self, cell: Cell, to: str) -> str:
        """Median, least and greatest of the ratios within a round."""
        ratios = self._ratios(cell, to, "step_s")
        return f"{statistics.median(ratios):.2f} [{min(ratios):.2f} .. {max(ratios):.2f}]" if ratios else ""

    def _cpu_ratio(self, cell: Cell) -> str:
        ratios = self._ratios(cell, NONE, "cpu_s")
        return f"{statistics.median(ratios):.2f}" if ratios else ""

    def _ratios(self, cell: Cell, to: str, what: str) -> list[float]:
        model, n, way = cell
        others = self.found.get((model, n, to), ()) if way not in (to, NONE) else ()
        return [getattr(one, what) / getattr(other, what) for one, other in zip(self.found[cell], others, strict=False)]


def legend() -> str:
    """What is compared, in words."""
    rows = ", ".join(f"{MODELS[name]} {LOGICAL} x {count}" for name, count in ROWS.items())
    return "\n".join(
        [
            f"N logical CPUs; rows of a step: {rows}, SGD with momentum,",
            f"one step a call, {STEPS} steps behind the first few; a process for each cell, ways in turn.",
            "step: median of the rounds' medians; ratios of step times: median [least .. greatest] of the",
            "ratios within a round. CPU: processor time of a step, and its ratio to that without logical replicas.",
            "first: the first step, tracing included. MB: the most memory of the process.",
        ]
    )
