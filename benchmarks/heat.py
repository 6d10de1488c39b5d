"""Runs the contenders of one heat in turn, and compares them round by round.

Neighbours in time see the same machine: each ratio is taken within a round, every other round runs
in reverse order, and the median over rounds is judged.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.contenders import MEMORY_LIMIT, Bar, Contender, Heat
from benchmarks.processes import Measurement, running

# Epochs of a block; the first, untimed one comes on top.
EPOCHS = 3
# What the length of the blocks is worked out from, as a part of a block.
_TRIAL = 0.25


@dataclasses.dataclass(frozen=True)
class Row:
    """One bar, measured."""

    group: str
    title: str
    model: str
    contender: str
    against: str
    ratio: float
    ratio_min: float
    ratio_max: float
    at_least: float | None
    steps_per_s: float
    against_steps_per_s: float
    cpu_ratio: float
    memory_ratio: float
    memory_at_most: float | None
    num_rounds: int

    @property
    def passed(self) -> bool | None:
        """Whether the bar is reached; None when there is none."""
        if self.at_least is None:
            return None
        fits = self.memory_at_most is None or self.memory_ratio <= self.memory_at_most
        return fits and self.ratio >= self.at_least


def run_heat(
    heat: Heat,
    model: str,
    *,
    num_rounds: int,
    block_s: float,
    timeout_s: float,
    python_of: Callable[[Contender], Path],
) -> tuple[list[Row], dict[str, list[Measurement]]]:
    """Measures one heat on one model.

    Args:
        heat: Who runs.
        model: What they train.
        num_rounds: How often each has its turn.
        block_s: Seconds of a turn, about.
        timeout_s: Deadline of each turn, the first included.
        python_of: The interpreter of a contender.

    Returns:
        A row per bar, and all measurements by label.
    """
    pythons = [python_of(contender) for contender in heat.contenders]
    measured: dict[str, list[Measurement]] = {each.label: [] for each in heat.contenders}
    with running(heat.contenders, model, pythons, timeout_s) as contenders:
        steps = {}
        for each in contenders:
            # Few steps first: they are slow, and how slow is not known yet.
            steps_per_call = each.contender.steps_per_call
            speed = each.run(2 * steps_per_call, 1).steps_per_s
            trial = steps_per_epoch(speed, _TRIAL * block_s, steps_per_call)
            speed = each.run(trial, EPOCHS).steps_per_s
            steps[each] = steps_per_epoch(speed, block_s, steps_per_call)
        for index in range(num_rounds):
            for each in contenders if index % 2 == 0 else reversed(contenders):
                measured[each.contender.label].append(each.run(steps[each], EPOCHS))
    ours = measured[heat.contenders[0].label]
    rows = [compare(heat, model, bar, ours, measured[bar.against]) for bar in heat.bars]
    return rows, measured


def steps_per_epoch(steps_per_s: float, block_s: float, steps_per_call: int) -> int:
    """Steps in an epoch of a block of `block_s` seconds: whole calls, one at least."""
    calls = round(steps_per_s * block_s / EPOCHS / steps_per_call)
    return max(1, calls) * steps_per_call


def compare(heat: Heat, model: str, bar: Bar, ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Row:
    """The ratios of two contenders, round by round."""
    pairs = list(zip(ours, theirs, strict=True))
    ratios = [a.examples_per_s / b.examples_per_s for a, b in pairs]
    # Steps may differ in size: CPU time is compared per example.
    cpu_s = [
        (a.cpu_s_per_step * a.steps_per_s / a.examples_per_s) / (b.cpu_s_per_step * b.steps_per_s / b.examples_per_s)
        for a, b in pairs
    ]
    return Row(
        group=heat.group,
        title=heat.title,
        model=model,
        contender=heat.contenders[0].label,
        against=bar.against,
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        at_least=bar.at_least,
        steps_per_s=statistics.median(each.steps_per_s for each in ours),
        against_steps_per_s=statistics.median(each.steps_per_s for each in theirs),
        cpu_ratio=statistics.median(cpu_s),
        memory_ratio=_peak(ours) / _peak(theirs),
        memory_at_most=MEMORY_LIMIT if bar.memory else None,
        num_rounds=len(pairs),
    )


def _peak(measurements: Sequence[Measurement]) -> int:
    return max(each.max_rss_bytes for each in measurements)
