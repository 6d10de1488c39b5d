"""Did they pay? Finished runs beside what was foretold of them from the first one's trace."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tfscale.errors import MeasureError
from tfscale.plan.critical_batch import from_noise
from tfscale.plan.rows import Run, steps_at
from tfscale.plan.source import Trace, of_unknown_model, read_all
from tfscale.scaling.knob import format_table

# The loss of so many examples of a run is taken together, as a share of the shortest run.
_SMOOTHED = 1 / 20


@dataclass(frozen=True)
class Checked:
    """One run, as it went and as it was foretold.

    Args:
        path: Of its trace.
        replicas: On which it ran.
        batch: Examples of a step.
        steps: To the loss; None where it was not reached.
        examples: To the loss.
        seconds: To the loss, with all that the run did besides.
        foretold_steps: The band of the steps; both the first run's own for the first run.
        is_as_foretold: Whether the steps are within; None where the loss was not reached.
        is_model_known: Whether something beside the trace tells of which model it is.
    """

    path: str
    replicas: int
    batch: float
    steps: float | None
    examples: float | None
    seconds: float | None
    foretold_steps: tuple[float, float]
    is_as_foretold: bool | None
    is_model_known: bool


def check_runs(paths: Sequence[str], goal: float | None = None) -> tuple[float, list[Checked]]:
    """Compares runs, at one loss.

    The steps to the loss of run 1, and the noise of its steps up to there, foretell those of the others.

    Args:
        paths: Of traces, or of directories with a `noise.csv`; two or more.
        goal: The loss; None for the lowest one that every run reached.

    Returns:
        The loss, and a row for each run.

    Raises:
        MeasureError: When there is one run, they are of several models, a trace has no losses, or the first run does
            not reach the loss.
    """
    traces = read_all(paths)
    if len(traces) < 2:
        raise MeasureError(
            f"What came true is seen of two runs or more.\nReceived: {', '.join(paths)}. Give one with another batch."
        )
    least = min(trace.rows[-1].seen for trace in traces)
    curves = [_curve(trace, least * _SMOOTHED) for trace in traces]
    loss = max(min(point[0] for point in curve) for curve in curves) if goal is None else goal
    if not math.isfinite(loss):
        raise MeasureError(f"The loss to compare at must be a finite number.\nReceived: {loss!r}.")
    reached = [_reach(curve, loss) for curve in curves]
    first, at = traces[0], reached[0]
    if at is None:
        raise MeasureError(
            "The first run must reach the loss at which the others are compared.\n"
            f"Received: loss {loss:g}, and the least of {first.path!r} is {min(p[0] for p in curves[0]):.4g}. "
            "Leave the loss out, or give the longer run first."
        )
    critical = from_noise([row for row in first.rows if row.step <= at[0]])
    run = Run(at[0], first.batch, 0)
    rows = []
    for place, (trace, point) in enumerate(zip(traces, reached, strict=True)):
        ends = sorted(steps_at(trace.batch, run, each) for each in (critical.low, critical.high))
        steps, examples, seconds = (None, None, None) if point is None else point
        # The first run foretells itself.
        is_within = None if steps is None or place == 0 else ends[0] <= steps <= ends[1]
        band = (ends[0], ends[1])
        measured = trace.path, trace.replicas, trace.batch, steps, examples, seconds
        rows.append(Checked(*measured, band, is_within, is_model_known=bool(trace.told)))
    return loss, rows


_Point = tuple[float, float, float, float]


def _curve(trace: Trace, width: float) -> list[_Point]:
    """(loss, step, examples, seconds), each loss the mean over so many examples before it, or over one row."""
    known = [row for row in trace.rows if row.loss is not None and math.isfinite(row.loss)]
    if not known:
        raise MeasureError(f"Runs are compared by their loss.\nReceived: {trace.path!r}, which has none.")
    found, begin = [], 0
    for place, row in enumerate(known):
        while known[begin].seen <= row.seen - width:
            begin += 1
        # A mean that begins with the run is one of fewer examples.
        if row.seen >= width or place == len(known) - 1:
            window = known[begin : place + 1]
            mean = math.fsum(each.loss or 0.0 for each in window) / len(window)
            found.append((mean, float(row.step), row.seen, row.seconds))
    return found


def _reach(curve: Sequence[_Point], loss: float) -> tuple[float, float, float] | None:
    return next((point[1:] for point in curve if point[0] <= loss), None)


def answer(paths: Sequence[str], goal: float | None, *, as_json: bool) -> str:
    """Returns what `tfscale plan --check` prints; the arguments are those of `check_runs`."""
    loss, rows = check_runs(paths, goal)
    if as_json:
        return json.dumps({"loss": loss, "runs": [_to_json(row) for row in rows]}, indent=1)
    head = ("run", "replicas", "batch", "steps", "foretold", "examples", "seconds", "examples, of run 1's", "faster")
    cells: list[tuple[str, ...]] = [head]
    first = rows[0]
    for row in rows:
        low, high = row.foretold_steps
        foretold = "" if row is first else f"{low:.4g} to {high:.4g}: {_verdict(row)}"
        cells.append((row.path, str(row.replicas), f"{row.batch:g}", *_measured(row, first, foretold)))
    note = "Foretold from the noise of run 1 alone: a band. Seconds have all in them that the runs did besides."
    unknown = (of_unknown_model(row.path) for row in rows if not row.is_model_known)
    notes = "\n".join([note, *(f"{each[0].upper()}{each[1:]}." for each in unknown)])
    return f"To a loss of {loss:.4g}:\n\n{format_table(cells[0], cells[1:])}\n\n{notes}"


def _verdict(row: Checked) -> str:
    return "not reached" if row.is_as_foretold is None else "came true" if row.is_as_foretold else "did not come true"


def _measured(row: Checked, first: Checked, foretold: str) -> tuple[str, ...]:
    if row.steps is None or row.examples is None or row.seconds is None:
        return "not reached", foretold, "", "", "", ""
    ratio = row.examples / (first.examples or 1.0)
    faster = f"{(first.seconds or 0.0) / row.seconds:.2f}x" if row.seconds > 0 else ""
    return f"{row.steps:g}", foretold, f"{row.examples:g}", f"{row.seconds:.3g}", f"{ratio:.2f}", faster


def _to_json(row: Checked) -> dict[str, Any]:
    low, high = row.foretold_steps
    return asdict(row) | {"foretold_steps": [low, high]}
