"""Did they pay? Finished runs beside what was foretold of them from the first one's trace."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tfscale.errors import MeasureError
from tfscale.plan.cautions import with_cautions
from tfscale.plan.critical_batch import CriticalBatch, from_noise
from tfscale.plan.given import link_of, size_bytes_of, step_time_of
from tfscale.plan.link import Link
from tfscale.plan.rows import Run, predict, steps_at
from tfscale.plan.source import Trace, of_unknown_model, read_all
from tfscale.plan.step_time import StepTime
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
        foretold_seconds: The band of the seconds; None for the first run, and where no link or no time of a step tells.
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
    foretold_seconds: tuple[float, float] | None
    is_as_foretold: bool | None
    is_model_known: bool


class Pace(NamedTuple):
    """What the seconds of a run are foretold from."""

    step_time: StepTime
    """Of one replica."""
    link: Link | None
    """Between replicas; None where it is not known."""
    size_bytes: float
    """Of a gradient."""
    micro_batch: int | None
    """Most examples of one pass; None for all."""


class Check(NamedTuple):
    """What came true."""

    loss: float
    """At which the runs are compared."""
    rows: list[Checked]
    """One for each run."""
    cautions: tuple[str, ...]
    """What to know before it is used."""


def check_runs(traces: Sequence[Trace], goal: float | None = None, pace: Pace | None = None) -> Check:
    """Compares runs, at one loss.

    The steps to the loss of run 1, and the noise of its steps up to there, foretell those of the others.

    Args:
        traces: Of one model; two or more.
        goal: The loss; None for the lowest one that every run reached.
        pace: Of what seconds are foretold; None to foretell none.

    Raises:
        MeasureError: When there is one run, a trace has no losses, or the first run does not reach the loss.
    """
    if len(traces) < 2:
        paths = ", ".join(trace.path for trace in traces)
        raise MeasureError(
            f"What came true is seen of two runs or more.\nReceived: {paths}. Give one with another batch."
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
    critical = with_cautions(from_noise([row for row in first.rows if row.step <= at[0]]), first)
    rows = []
    for place, (trace, point) in enumerate(zip(traces, reached, strict=True)):
        ends = sorted(steps_at(trace.batch, Run(at[0], first.batch, 0), each) for each in (critical.low, critical.high))
        steps, examples, seconds = (None, None, None) if point is None else point
        # The first run foretells itself.
        is_within = None if steps is None or place == 0 else ends[0] <= steps <= ends[1]
        foretold = (
            (ends[0], ends[1]),
            None if place == 0 or pace is None else _seconds(trace, first, at[0], critical, pace),
        )
        measured = trace.path, trace.replicas, trace.batch, steps, examples, seconds
        rows.append(Checked(*measured, *foretold, is_within, is_model_known=bool(trace.told)))
    return Check(loss, rows, critical.cautions)


def _seconds(
    trace: Trace, first: Trace, steps: float, critical: CriticalBatch, pace: Pace
) -> tuple[float, float] | None:
    if trace.replicas > 1 and pace.link is None:
        return None
    batch = max(1, round(trace.batch / trace.replicas))
    run = Run(steps, first.batch, pace.size_bytes, pace.micro_batch)
    rows = predict(run, critical, pace.step_time, pace.link, num_replicas=[trace.replicas], per_replica_batches=[batch])
    total_s = next(row.total_s for row in rows if row.per_replica_batch == batch)
    return total_s.low, total_s.high


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


def answer(args: argparse.Namespace) -> str:
    """Returns what `tfscale plan --check` prints.

    Args:
        args: With `check`, `goal`, `json` and what tells of time: `link`, `latency`, `step_times`, `parameters` and
            `micro_batch`.
    """
    traces = read_all(args.check)
    pace, notes = _pace(args, traces)
    loss, rows, cautions = check_runs(traces, args.goal, pace)
    if args.json:
        content = {"loss": loss, "runs": [_to_json(row) for row in rows], "assumptions": notes, "cautions": cautions}
        return json.dumps(content, indent=1)
    head = ("run", "replicas", "batch", "steps", "foretold", "examples", "seconds", "foretold")
    cells: list[tuple[str, ...]] = [(*head, "examples, of run 1's", "faster")]
    first = rows[0]
    for row in rows:
        low, high = row.foretold_steps
        foretold = "" if row is first else f"{low:.4g} to {high:.4g}: {_verdict(row)}"
        cells.append((row.path, str(row.replicas), f"{row.batch:g}", *_measured(row, first, foretold)))
    lines = ["Foretold from the noise of run 1 alone: a band. Seconds have all in them that the runs did besides."]
    unknown = [of_unknown_model(row.path) for row in rows if not row.is_model_known]
    lines += [f"{each[0].upper()}{each[1:]}." for each in (*notes, *unknown)]
    lines += [f"Caution: {each}." for each in cautions]
    return "\n".join([f"To a loss of {loss:.4g}:\n\n{format_table(cells[0], cells[1:])}\n", *lines])


def _pace(args: argparse.Namespace, traces: Sequence[Trace]) -> tuple[Pace | None, list[str]]:
    """What the first run and the flags say of time, and on what that rests."""
    first, most = traces[0], max(trace.replicas for trace in traces)
    if args.step_times is None and not first.step_times and not first.seconds_per_step:
        return None, ["no seconds are foretold: give --step-times"]
    step_time, notes = step_time_of(args.step_times, traces[:1])
    if args.link is None:
        notes += ["no seconds of several replicas are foretold: give --link"] if most > 1 else []
        return Pace(step_time, None, 0.0, args.micro_batch), notes
    link = link_of(args, first, most, notes)
    return Pace(step_time, link, size_bytes_of(args.parameters, first, most), args.micro_batch), notes


def _verdict(row: Checked) -> str:
    return "not reached" if row.is_as_foretold is None else "came true" if row.is_as_foretold else "did not come true"


def _measured(row: Checked, first: Checked, foretold: str) -> tuple[str, ...]:
    foretold_s = "" if row.foretold_seconds is None else "{:.3g} to {:.3g}".format(*row.foretold_seconds)
    if row.steps is None or row.examples is None or row.seconds is None:
        return "not reached", foretold, "", "", foretold_s, "", ""
    ratio = row.examples / (first.examples or 1.0)
    faster = f"{(first.seconds or 0.0) / row.seconds:.2f}x" if row.seconds > 0 else ""
    return f"{row.steps:g}", foretold, f"{row.examples:g}", f"{row.seconds:.3g}", foretold_s, f"{ratio:.2f}", faster


def _to_json(row: Checked) -> dict[str, Any]:
    # What has no end is null.
    bands = {name: getattr(row, name) for name in ("foretold_steps", "foretold_seconds")}
    return asdict(row) | {
        name: None if band is None else [each if math.isfinite(each) else None for each in band]
        for name, band in bands.items()
    }
