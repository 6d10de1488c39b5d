"""How is what was foretold shown: as a table, as JSON?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tfscale.plan.critical_batch import CriticalBatch
from tfscale.plan.rows import Advice, Band, Row, Run
from tfscale.plan.source import Trace
from tfscale.scaling.knob import format_table

_FAST_ENOUGH = 0.2


class Foretold(NamedTuple):
    """All of one answer."""

    trace: Trace
    run: Run
    critical: CriticalBatch
    rows: Sequence[Row]
    advice: Advice
    network: tuple[int, list[dict[str, float | str]]] | None
    assumptions: tuple[str, ...]


def describe(found: Foretold) -> str:
    """Returns it as text: the answer first."""
    rows = found.rows
    with_cost = any(row.cost is not None for row in rows)
    head = ("replicas", "each", "batch", "steps", "examples", "ms a step", "waiting", "time", "efficiency")
    table = [_cells(row, with_cost, row is found.advice.row) for row in rows]
    lines = [found.advice.sentence, "", *_basis(found), ""]
    lines.append(format_table((*head, *(("cost",) if with_cost else ()), ""), table))
    if found.network is not None:
        lines += ["", *_network_lines(*found.network)]
    return "\n".join(lines)


def _basis(found: Foretold) -> list[str]:
    critical, run, trace = found.critical, found.run, found.trace
    low, high = f"{critical.low:.3g}", "no upper end" if math.isinf(critical.high) else f"{critical.high:.3g}"
    if critical.source in ("study", "branches", "given") and critical.value is not None:
        number = f"Critical batch {critical.value:.3g} examples, {low} to {high}"
    else:
        number = f"Critical batch between {low} and {high} examples"
    loss = next((row.loss for row in reversed(trace.rows) if row.loss is not None), None)
    reached = "" if loss is None or run.steps != trace.steps else f", to where it had a loss of {loss:.3g}"
    return [
        f"{number}: {critical.note}.",
        f"The run: {run.steps:.6g} steps of {run.batch:g} examples{reached}. Rates as the rules have them.",
        *(f"{each[0].upper()}{each[1:]}." for each in found.assumptions),
        *(f"Caution: {each}." for each in critical.cautions),
    ]


def _cells(row: Row, with_cost: bool, is_advised: bool) -> tuple[str, ...]:
    cells = [str(row.num_replicas), str(row.per_replica_batch), str(row.global_batch)]
    cells += [_band(row.steps), _band(row.examples)]
    low, high = row.step_s
    cells.append(f"{1e3 * low:.3g}" if math.isclose(low, high) else f"{1e3 * low:.3g} to {1e3 * high:.3g}")
    waits = [f"{100 * each:.0f}" for each in row.waiting]
    cells.append(f"{waits[0]} %" if waits[0] == waits[1] else f"{waits[0]} to {waits[1]} %")
    cells += [_band(row.total_s, _duration), _band(row.efficiency, lambda each: f"{100 * each:.0f} %")]
    if with_cost and row.cost is not None:
        cells.append(_band(row.cost, lambda each: f"{each:.2f}" if each < 1000 else f"{each:.4g}"))
    return (*cells, "<- take this" if is_advised else "")


def _band(band: Band, form: Any = lambda each: f"{each:.3g}" if each < 1000 else f"{each:.0f}") -> str:
    low, high = form(band.low), form(band.high)
    if low == high:
        return str(low)
    return f"{low} to {high}"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _network_lines(number: int, table: list[dict[str, float | str]]) -> list[str]:
    waits = float(table[0]["waits"])
    verdict = "fast enough" if waits <= _FAST_ENOUGH else "not fast enough"
    line = (
        f"Is the network fast enough? With {number} replicas a step waits {100 * waits:.0f} % of its time: {verdict}."
    )
    head = ("link", "waits", "in one pack", "with bf16", "with double buffering")
    names = ("waits", "one_pack", "half_the_bytes", "double_buffering")
    rows = [(str(each["link"]), *(f"{100 * float(each[name]):.0f} %" for name in names)) for each in table]
    return [line, format_table(head, rows)]


def to_json(found: Foretold) -> dict[str, Any]:
    """Returns it as an object of JSON; what has no end is null."""
    critical, advised = found.critical, found.advice.row
    return {
        "advice": {
            "sentence": found.advice.sentence,
            "num_replicas": advised.num_replicas,
            "per_replica_batch": advised.per_replica_batch,
        },
        "critical_batch": {
            "low": critical.low,
            "value": critical.value if critical.source != "noise" else None,
            "high": _finite(critical.high),
            "from_noise_with_factor_1": critical.value if critical.source == "noise" else None,
            "source": critical.source,
            "note": critical.note,
        },
        "run": {"steps": found.run.steps, "batch": found.run.batch, "gradient_bytes": found.run.size_bytes},
        "assumptions": list(found.assumptions),
        "cautions": list(critical.cautions),
        "rows": [_row_to_json(row) for row in found.rows],
        "network": None if found.network is None else {"num_replicas": found.network[0], "links": found.network[1]},
    }


def _row_to_json(row: Row) -> dict[str, Any]:
    def band(each: Band) -> dict[str, float | None]:
        return {"low": each.low, "value": each.value, "high": _finite(each.high)}

    return {
        "num_replicas": row.num_replicas,
        "per_replica_batch": row.per_replica_batch,
        "global_batch": row.global_batch,
        "steps": band(row.steps),
        "examples": band(row.examples),
        "step_s": list(row.step_s),
        "waiting": list(row.waiting),
        "total_s": band(row.total_s),
        "cost": None if row.cost is None else band(row.cost),
        "efficiency": band(row.efficiency),
    }


def _finite(number: float) -> float | None:
    return None if math.isinf(number) else number
