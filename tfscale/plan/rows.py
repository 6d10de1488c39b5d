"""What would N replicas take to get there, and how many of them are worth it?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfscale.plan.critical_batch import CriticalBatch
from tfscale.plan.link import Link
from tfscale.plan.step_time import StepTime

# No more than a quarter of the examples may be wasted, and a doubling of the replicas must save so much of the time.
MOST_EXAMPLES, LEAST_GAIN = 1.25, 1.3


class Band(NamedTuple):
    """From, most likely, to; the middle is None where it is not known."""

    low: float
    value: float | None
    high: float

    def times(self, factor: float) -> Band:
        """The band of so many times what this one is of."""
        return Band(self.low * factor, None if self.value is None else self.value * factor, self.high * factor)


@dataclass(frozen=True)
class Run:
    """The run that is foretold.

    Args:
        steps: That it takes at its own batch.
        batch: Examples of a step.
        size_bytes: Of its gradients in float32.
        micro_batch: Most examples of one pass; None for all.
    """

    steps: float
    batch: float
    size_bytes: float
    micro_batch: int | None = None


@dataclass(frozen=True)
class Row:
    """One number of replicas with one per-replica batch.

    Args:
        num_replicas: N.
        per_replica_batch: b.
        steps: To the same place.
        examples: To the same place.
        step_s: Seconds of a step.
        waiting: Share of it that waits for the link; from and to.
        total_s: Seconds to the same place.
        cost: Of all replicas together; None without a price.
        efficiency: Of one replica's seconds over those of all N together.
    """

    num_replicas: int
    per_replica_batch: int
    steps: Band
    examples: Band
    step_s: tuple[float, float]
    waiting: tuple[float, float]
    total_s: Band
    cost: Band | None
    efficiency: Band

    @property
    def global_batch(self) -> int:
        """N b."""
        return self.num_replicas * self.per_replica_batch


class Advice(NamedTuple):
    """What to take."""

    row: Row
    sentence: str


def steps_at(batch: float, run: Run, critical: float) -> float:
    """S(B), from what the run took at its own batch.

    Example:
        >>> from tfscale.plan.rows import Run, steps_at
        >>> steps_at(96, Run(steps=400, batch=32, size_bytes=0), critical=96)
        200.0
    """
    if math.isinf(critical):
        return run.steps * run.batch / batch
    return run.steps * (1 + critical / batch) / (1 + critical / run.batch)


def predict(
    run: Run,
    critical: CriticalBatch,
    step_time: StepTime,
    link: Link | None,
    *,
    num_replicas: Sequence[int],
    per_replica_batches: Sequence[int],
    price_per_hour: float | None = None,
) -> list[Row]:
    """Returns a row for each number of replicas and each per-replica batch, and for the run's batch where it divides.

    `time = steps(N b) * (a + c b + what the link exposes)`. The lower end of the band of the critical batch gives the
    most steps beyond the run's own batch.

    Args:
        run: That was measured.
        critical: Its critical batch.
        step_time: Of one replica.
        link: Between the replicas; None where there is one replica.
        num_replicas: Of the rows.
        per_replica_batches: Of the rows.
        price_per_hour: Of one replica.

    Example:
        >>> from tfscale.plan import CriticalBatch, Link, StepTime, predict
        >>> from tfscale.plan.rows import Run
        >>> rows = predict(
        ...     Run(steps=400, batch=32, size_bytes=4e6),
        ...     CriticalBatch(96, 96, 96, "study", ""),
        ...     StepTime.fit({32: 0.1}),
        ...     Link("1gbit", 125e6, 0.0),
        ...     num_replicas=[1, 4],
        ...     per_replica_batches=[32],
        ... )
        >>> [(row.num_replicas, row.per_replica_batch, round(row.steps.value), round(row.total_s.low)) for row in rows]
        [(1, 32, 400, 40), (4, 8, 400, 23), (4, 32, 175, 18)]
    """
    one = step_time.seconds(round(run.batch), run.micro_batch)
    rows = []
    for number in sorted(set(num_replicas)):
        batches = set(per_replica_batches)
        if run.batch % number == 0:
            batches.add(int(run.batch // number))
        for batch in sorted(batches):
            steps, step_s, waiting, total_s = _seconds(run, critical, step_time, link, number, batch)
            examples = steps.times(number * batch)
            cost = None if price_per_hour is None else total_s.times(number * price_per_hour / 3600)
            efficiency = _efficiency(run, critical, one, step_s, number, batch)
            rows.append(Row(number, batch, steps, examples, step_s, waiting, total_s, cost, efficiency))
    return rows


def _seconds(
    run: Run, critical: CriticalBatch, step_time: StepTime, link: Link | None, number: int, batch: int
) -> tuple[Band, tuple[float, float], tuple[float, float], Band]:
    ends = [steps_at(number * batch, run, each) for each in (critical.low, critical.high)]
    likely = None if critical.value is None else steps_at(number * batch, run, critical.value)
    steps = Band(min(ends), likely, max(ends))
    last = batch % run.micro_batch or run.micro_batch if run.micro_batch and run.micro_batch < batch else batch
    found = []
    pairs = zip(step_time.seconds(batch, run.micro_batch), step_time.seconds(last), strict=True)
    for computing, last_pass in pairs:
        exposed = 0.0 if link is None or number == 1 else link.exposed_s(number, run.size_bytes, last_pass)
        found.append((computing + exposed, exposed / (computing + exposed)))
    low, high = (each[0] for each in found)
    value = None if likely is None or not math.isclose(low, high) else likely * low
    shares = sorted(each[1] for each in found)
    return steps, (low, high), (shares[0], shares[1]), Band(steps.low * low, value, steps.high * high)


def _efficiency(
    run: Run, critical: CriticalBatch, one_s: tuple[float, float], step_s: tuple[float, float], number: int, batch: int
) -> Band:
    """Of one replica at the run's batch: 1 there, by definition."""
    factors = [own / several / number for own, several in zip(one_s, step_s, strict=True)]

    def fewer(critical_batch: float) -> float:
        return steps_at(round(run.batch), run, critical_batch) / steps_at(number * batch, run, critical_batch)

    # Both go by the same critical batch and by the same end of what a step of this device takes.
    ends = [fewer(each) * factor for each in (critical.low, critical.high) for factor in factors]
    likely = None
    if critical.value is not None and math.isclose(*factors):
        likely = fewer(critical.value) * factors[0]
    return Band(min(ends), likely, max(ends))


def advise(rows: Sequence[Row], run: Run, critical: CriticalBatch) -> Advice:
    """Returns the row to take: the largest number of replicas that wastes no more than a quarter of the examples.

    Beside those of one replica with the smallest batch of its rows, or of the smallest batch of all where one replica
    is not among them; the trace's own batch may be large already. At the lower end of the band, so never beyond what
    is known; from noise alone no larger batch than that end. Each further doubling has to save a quarter of the time or
    more, at the longer end of what a step may take. A network that is too slow ends it too.

    Args:
        rows: As `predict` returns them.
        run: Of which they are.
        critical: By which they are.
    """
    of_one = [row for row in rows if row.num_replicas == 1]
    smallest = min(of_one or rows, key=lambda row: (row.global_batch, row.num_replicas))
    baseline = _examples_at(smallest, run, critical.low)
    most_batch = max(critical.low, smallest.global_batch) if critical.source == "noise" else math.inf
    chosen: Row | None = None
    why_not = ""
    for number in sorted({row.num_replicas for row in rows}):
        own = [row for row in rows if row.num_replicas == number]
        frugal = [row for row in own if _examples_at(row, run, critical.low) <= MOST_EXAMPLES * baseline]
        known = [row for row in frugal if row.global_batch <= most_batch]
        if not frugal:
            least = min(_examples_at(row, run, critical.low) for row in own)
            why_not = f"{number} would take up to {least / baseline:.2f} times the examples of {_each(smallest)}"
            break
        if not known:
            least = min(row.global_batch for row in frugal)
            why_not = (
                f"{number} would take a batch of {least:g} or more, above the lower end of the band, {critical.low:.3g}"
            )
            break
        best = min(known, key=lambda row: (_worst_s(row, run, critical), row.per_replica_batch))
        if chosen is not None:
            gain = _worst_s(chosen, run, critical) / _worst_s(best, run, critical)
            doublings = math.log2(number / chosen.num_replicas)
            if gain < LEAST_GAIN**doublings:
                waits = f", and waits up to {100 * best.waiting[1]:.0f} % of a step" if best.waiting[1] > 0.2 else ""
                why_not = f"{number} would be {gain:.2f} times as fast as {chosen.num_replicas}{waits}"
                break
        chosen = best
    if chosen is None:
        return Advice(smallest, f"None of these is worth its examples at the lower end of the band: {why_not}.")
    waste = _examples_at(chosen, run, critical.low) / baseline
    compared = "" if chosen is smallest else f", at most {waste:.2f} times the examples of {_each(smallest)}"
    end = f"; {why_not}" if why_not else "; that is the most that was asked for"
    return Advice(chosen, f"Take {_each(chosen)} examples each: {chosen.global_batch} a step{compared}{end}.")


def _each(row: Row) -> str:
    return f"{row.num_replicas} {'replica' if row.num_replicas == 1 else 'replicas'} with {row.per_replica_batch}"


def _examples_at(row: Row, run: Run, critical: float) -> float:
    return steps_at(row.global_batch, run, critical) * row.global_batch


def _worst_s(row: Row, run: Run, critical: CriticalBatch) -> float:
    return steps_at(row.global_batch, run, critical.low) * row.step_s[1]
