"""What stands on the page of a run?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from tfscale.console.chart import Points, lines, shares
from tfscale.console.page import heading, page, paragraph, preformatted, table
from tfscale.reporting.reading import RunFiles

_NAN = math.nan
_INPUT, _SENDING = "other steps: waiting for input", "other steps: summing gradients, at most"


def facts_of(run: RunFiles) -> dict[str, Any]:
    """What the page says in words and tables, for JSON."""
    last = run.scaling[-1] if run.scaling else {}
    return {
        "directory": str(run.directory),
        "starts": [{name: value for name, value in each.items() if name != "derived"} for each in run.starts],
        "recoveries": max(0, len(run.starts) - 1),
        "has_ended": run.has_ended,
        "epochs": len(run.epochs) or len(run.scaling),
        "last_logs": run.epochs[max(run.epochs)]["logs"] if run.epochs else {},
        "last_scaling": last,
        "time_s": time_parts(run),
        "noise": run.noise,
        "saved_states": len(run.saves),
        "derived": run.starts[-1].get("derived", "") if run.starts else "",
        "problems": run.problems,
    }


def time_parts(run: RunFiles) -> dict[str, float]:
    """Where the time of all epochs went, in seconds; what steps wait for is told apart where the file has it."""
    if not run.epochs:
        return {}
    total, first, train, validation = (
        sum(each[name] for each in run.epochs.values())
        for name in ("total_s", "first_call_s", "train_s", "validation_s")
    )
    rest = max(0.0, total - first - train - validation)
    waits: dict[str, float] = {}
    computes_s = train
    for name, key in ((_INPUT, "input_s"), (_SENDING, "sending_s")):
        if all(key in each for each in run.epochs.values()):
            waits[name] = min(computes_s, sum(max(0.0, each[key]) for each in run.epochs.values()))
            computes_s -= waits[name]
    return {
        "first step (graph, check)": first,
        **waits,
        "other steps: the rest" if waits else "other steps": computes_s,
        "validation": validation,
        "callbacks and the rest": rest,
    }


def page_of(run: RunFiles) -> str:
    """Returns the page.

    Args:
        run: What was found.
    """
    parts = [*_summary(run), *(paragraph(f"Could not be read: {each}.", "warning") for each in run.problems)]
    if curves := _curves(run):
        parts += [heading("Curves"), _grid(curves)]
    parts += _scaling(run)
    parts += _time(run)
    parts += _noise(run)
    parts += _starts(run)
    derived = run.starts[-1].get("derived") if run.starts else ""
    parts += [heading("What was derived"), preformatted(str(derived))] if derived else []
    return page(f"Run {run.directory.name or run.directory}", parts)


def _summary(run: RunFiles) -> list[str]:
    facts = facts_of(run)
    start = run.starts[-1] if run.starts else {}
    told = [f"{facts['epochs']} epochs"]
    told += (
        [f"{start['replicas']} replicas" if start.get("replicas") != 1 else "1 replica"] if "replicas" in start else []
    )
    told += [f"global batch {start['global_batch']}"] if "global_batch" in start else []
    told += [_plural(facts["recoveries"], "recovery", "recoveries")] if run.starts else []
    told += ["came to its end" if run.has_ended else "has not come to its end"] if run.starts else []
    logs = ", ".join(f"{name} {value:.4g}" for name, value in facts["last_logs"].items() if value is not None)
    return [paragraph(", ".join(told) + "."), *([paragraph(f"Last epoch: {logs}.")] if logs else [])]


def _curves(run: RunFiles) -> list[str]:
    """One figure for each metric, with that of validation in it."""
    named: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for epoch, row in sorted(run.epochs.items()):
        for name, value in row["logs"].items():
            if name != "learning_rate":
                points = named.setdefault(name.removeprefix("val_"), {}).setdefault(name, [])
                points.append((epoch + 1, _NAN if value is None else value))
    for file, rows in run.logs.items() if not run.epochs else ():
        for row in rows:
            for name, value in row.items():
                if name != "epoch" and row["epoch"] is not None:
                    points = named.setdefault(f"{name.removeprefix('val_')} ({file})", {}).setdefault(name, [])
                    points.append((row["epoch"] + 1, _NAN if value is None else value))
    marks = [each["epoch"] + 1 for each in run.starts[1:]]
    return [lines(name, series, x="epoch", y=name.split(" (")[0], marks=marks) for name, series in named.items()]


def _scaling(run: RunFiles) -> list[str]:
    if not run.scaling:
        return []
    figures = [
        lines("Learning rate", {"rate": _column(run, "learning_rate")}, x="epoch", y="rate"),
        lines("Global batch", {"batch": _column(run, "global_batch")}, x="epoch", y="examples"),
        lines("Examples per second", {"speed": _column(run, "examples_per_s")}, x="epoch", y="examples/s"),
        lines("Time of a step", {"step": _column(run, "step_time_s", 1000.0)}, x="epoch", y="ms"),
    ]
    momentum = _column(run, "momentum")
    if not all(math.isnan(value) for _, value in momentum):
        figures.insert(1, lines("Momentum", {"momentum": momentum}, x="epoch", y="momentum, beta_1"))
    return [heading("Rate, batch and speed"), _grid(figures)]


def _column(run: RunFiles, name: str, factor: float = 1.0) -> Points:
    return [
        ((row["epoch"] or 0.0) + 1, _NAN if (value := row.get(name)) is None else factor * value) for row in run.scaling
    ]


def _time(run: RunFiles) -> list[str]:
    parts = time_parts(run)
    if not parts:
        return []
    note = "Saves are made beside the training."
    if _INPUT in parts:
        note += " Steps wait for input as measured on this host; a pipeline that is too slow shows here."
    if _SENDING in parts:
        note += (
            " Summing gradients is reckoned from the link as it was measured at the start, as if nothing were computed "
            "meanwhile: what hides behind the backward pass is arithmetic in truth."
        )
    note += " The rest of the steps is arithmetic and the wait for replicas that are slower."
    return [heading("Where the time went"), _grid([shares("All epochs", parts)]), paragraph(note, "quiet")]


def _noise(run: RunFiles) -> list[str]:
    if not run.trace and not run.noise:
        return []
    figures = []
    points = [
        (float(row.step), row.moments.variance / row.moments.squared_mean)
        for row in run.trace
        if row.moments.squared_mean > 0
    ]
    if points:
        figures.append(lines("Noise scale of single steps", {"noise": points}, x="step", y="examples", log_y=True))
    value, interval = run.noise.get("noise_scale"), run.noise.get("interval")
    told = "The noise scale was not found: it takes more steps."
    if isinstance(value, int | float):
        told = f"Noise scale: about {_rounded(value)} examples"
        if isinstance(interval, list) and len(interval) == 2 and isinstance(interval[0], int | float):
            told += f", from {_rounded(interval[0])} " + (
                f"to {_rounded(interval[1])}" if isinstance(interval[1], int | float) else "up, with no upper end yet"
            )
        told += ". Up to about that batch, twice the replicas take about half the steps."
    note = "Single steps scatter widely, to both sides; the number above is a ratio of sums over all of them."
    return [heading("Noise scale"), paragraph(told), *([_grid(figures), paragraph(note, "quiet")] if figures else [])]


def _bits_of_starts(run: RunFiles) -> list[str]:
    """On what the bits of each start depended; once where it is the same."""
    found = [each["bits"] for each in run.starts if isinstance(each.get("bits"), dict)]
    return list(dict.fromkeys(", ".join(f"{name} {value}" for name, value in each.items()) for each in found))


def _starts(run: RunFiles) -> list[str]:
    if not run.starts:
        return []
    rows = []
    for index, each in enumerate(run.starts):
        when = datetime.fromtimestamp(each["at"], timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        how = "began" if index == 0 and each["step"] == 0 else "went on"
        rows.append(
            [
                when,
                how,
                str(each["epoch"] + 1),
                str(each["step"]),
                _shown(each, "replicas"),
                _shown(each, "global_batch"),
            ]
        )
    parts = [
        heading("Starts and recoveries"),
        table(["when", "the run", "in epoch", "after step", "replicas", "global batch"], rows),
    ]
    parts += [paragraph(f"Bits: {told}.", "quiet") for told in _bits_of_starts(run)]
    if run.saves:
        parts.append(paragraph(f"{_plural(len(run.saves), 'saved state', 'saved states')} kept.", "quiet"))
    return parts


def _rounded(value: float) -> str:
    """Three digits, and no power of ten."""
    return f"{float(f'{value:.3g}'):,g}" if abs(value) < 1e6 else f"{value:.3g}"


def _shown(each: Mapping[str, Any], name: str) -> str:
    return str(each.get(name, "-"))


def _grid(figures: Sequence[str]) -> str:
    return f'<div class="grid">{"".join(figures)}</div>'


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
