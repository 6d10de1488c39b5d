"""What was measured, beside what link and processor allow."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from benchmarks.links.options import ALONE, BYTES_PER_S, OPTIONS, RATES, REFERENCE
from benchmarks.table import ruled


@dataclasses.dataclass(frozen=True)
class Block:
    """One turn of one option."""

    model: str
    rate: str
    option: str
    round: int
    step_s: float
    sent_bytes: float


@dataclasses.dataclass(frozen=True)
class Row:
    """One option at one rate.

    Args:
        model: Name.
        rate: Of the link.
        option: Label.
        exactness: As stated.
        step_s: Median seconds of a step.
        spread_s: The least and the greatest.
        sent_bytes: Of one worker in one step, headers included.
        limit_s: max(compute, bytes / bandwidth).
        speed_up: Over float32 in one pack; the median of the ratios within a round.
        passed: Whether its bar is reached; None without one.
    """

    model: str
    rate: str
    option: str
    exactness: str
    step_s: float
    spread_s: tuple[float, float]
    sent_bytes: float
    limit_s: float
    speed_up: float
    passed: bool | None


def rows_of(blocks: Sequence[Block]) -> list[Row]:
    """A row for each option at each rate; no bar where nothing limits."""
    rows = []
    for model in dict.fromkeys(block.model for block in blocks):
        for rate in RATES:
            here = [block for block in blocks if (block.model, block.rate) == (model, rate)]
            if here:
                rows += _rows(model, rate, here)
    return rows


def _rows(model: str, rate: str, blocks: Iterable[Block]) -> list[Row]:
    by_option: dict[str, list[Block]] = {}
    for block in blocks:
        by_option.setdefault(block.option, []).append(block)
    compute_s = statistics.median(block.step_s for block in by_option[ALONE])
    rows = []
    for option in OPTIONS:
        own = by_option[option.label]
        bytes_per_s = BYTES_PER_S[rate]
        sent = statistics.median(block.sent_bytes for block in own)
        limit_s = max(compute_s, sent / bytes_per_s if bytes_per_s else 0.0)
        step_s = statistics.median(block.step_s for block in own)
        pairs = zip(by_option[REFERENCE], own, strict=True)
        speed_up = statistics.median(reference.step_s / block.step_s for reference, block in pairs)
        passed = None
        if option.within and bytes_per_s:
            passed = step_s <= option.within * limit_s
        if option.times_reference and (model, rate) == ("mlp", "100mbit"):
            passed = speed_up >= option.times_reference
        times = [block.step_s for block in own]
        spread = (min(times), max(times))
        rows.append(Row(model, rate, option.label, option.exactness, step_s, spread, sent, limit_s, speed_up, passed))
    return rows


_HEADER = (
    "model",
    "link",
    "option",
    "",
    "ms a step",
    "MB sent",
    "limit, ms",
    "of the limit",
    "steps/s",
    "speed-up",
    "",
)


def render(rows: Sequence[Row]) -> str:
    """The table."""
    return ruled(_HEADER, map(_cells, rows))


def _cells(row: Row) -> tuple[str, ...]:
    least, greatest = row.spread_s
    return (
        row.model,
        row.rate,
        row.option,
        row.exactness if row.option != ALONE else "",
        f"{1e3 * row.step_s:.1f} [{1e3 * least:.1f} .. {1e3 * greatest:.1f}]",
        f"{row.sent_bytes / 1e6:.3f}",
        f"{1e3 * row.limit_s:.1f}",
        f"{row.step_s / row.limit_s:.2f}",
        f"{1 / row.step_s:.1f}",
        f"{row.speed_up:.2f}",
        {None: "", True: "ok", False: "MISSED"}[row.passed],
    )
