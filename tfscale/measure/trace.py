"""What was measured in the steps of one run, as a file that other tools read?

A CSV file with one row per measured step. `v:NAME` and `m:NAME` are those of one layer, where each was measured.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfscale.errors import MeasureError
from tfscale.measure.moments import StepMoments

COLUMNS = ("step", "examples", "v", "m", "K", "n", "loss", "seconds")


@dataclass(frozen=True)
class TraceRow:
    """One measured step.

    Args:
        step: Its number in the run, from 1.
        seen: Examples of the run up to it.
        moments: v, m, K and n.
        loss: Mean over the steps since the row before; None where it is not known.
        seconds: Since the run began.
        layers: v and m of each layer, by its name; empty where they were not measured.
    """

    step: int
    seen: float
    moments: StepMoments
    loss: float | None
    seconds: float
    layers: dict[str, tuple[float, float]] = field(default_factory=dict)


def format_trace(rows: Iterable[TraceRow], *, layers: Sequence[str] = (), with_header: bool = True) -> str:
    """Returns the lines of a CSV file.

    Args:
        rows: In the order of their steps.
        layers: Names of the layers that were measured.
        with_header: Whether the first line names the columns.

    Example:
        >>> from tfscale.measure import StepMoments
        >>> from tfscale.measure.trace import TraceRow, format_trace
        >>> print(format_trace([TraceRow(1, 32.0, StepMoments(8.0, 0.5, 32.0, 4), 0.7, 1.5)]), end="")
        step,examples,v,m,K,n,loss,seconds
        1,32,8.0,0.5,4,32,0.7,1.5
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    if with_header:
        writer.writerow([*COLUMNS, *(f"{kind}:{name}" for name in layers for kind in "vm")])
    for row in rows:
        own = row.moments
        line = [row.step, f"{row.seen:.15g}", repr(own.variance), repr(own.squared_mean), own.shards]
        line += [f"{own.examples:.15g}", "" if row.loss is None else repr(row.loss), repr(round(row.seconds, 6))]
        writer.writerow([*line, *(repr(each) for name in layers for each in row.layers[name])])
    return text.getvalue()


def read_trace(path: str | os.PathLike[str]) -> list[TraceRow]:
    r"""Reads a file that `callbacks.NoiseScale` has written.

    Args:
        path: Of the file.

    Raises:
        MeasureError: When it is not there, is none of these files, is damaged, or its steps are out of order, as where
            two runs have written to it.

    Example:
        >>> import pathlib, tempfile
        >>> from tfscale.measure import read_trace
        >>> path = pathlib.Path(tempfile.mkdtemp(), "noise.csv")
        >>> _ = path.write_text("step,examples,v,m,K,n,loss,seconds\n1,32,8.0,0.5,4,32,,1.5\n")
        >>> [row] = read_trace(path)
        >>> row.moments.variance, row.loss
        (8.0, None)
    """
    try:
        lines = list(csv.reader(Path(path).read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MeasureError(
            f"A trace must be a file that can be read.\nReceived: {os.fspath(path)!r}: {error}. "
            "`tfscale.callbacks.NoiseScale` and `tfscale measure` write one."
        ) from error
    if not lines or tuple(lines[0][: len(COLUMNS)]) != COLUMNS:
        raise MeasureError(
            f"A trace must begin with the columns {','.join(COLUMNS)}.\n"
            f"Received: {os.fspath(path)!r}, which begins with {','.join(lines[0] if lines else [])[:100]!r}. "
            "Give a file that `tfscale.callbacks.NoiseScale` has written."
        )
    columns = lines[0][len(COLUMNS) :]
    layers = [name.removeprefix("v:") for name in columns[::2]]
    if columns != [f"{kind}:{name}" for name in layers for kind in "vm"] or len(set(layers)) < len(layers):
        raise MeasureError(
            "The columns of layers in a trace must come in pairs, `v:NAME` and `m:NAME`, once each.\n"
            f"Received: {os.fspath(path)!r}, with {','.join(columns)[:100]!r}. Give a file as "
            "`tfscale.callbacks.NoiseScale` has written it."
        )
    rows: list[TraceRow] = []
    for number, line in enumerate(lines[1:], 2):
        rows.append(_read_row(line, layers, f"line {number} of {os.fspath(path)!r}"))
        if len(rows) > 1 and rows[-1].step <= rows[-2].step:
            raise MeasureError(
                "The steps of a trace must grow.\n"
                f"Received: step {rows[-1].step} after {rows[-2].step} in line {number} of {os.fspath(path)!r}. "
                "Give each run a file of its own."
            )
    return rows


def _read_row(line: Sequence[str], layers: Sequence[str], where: str) -> TraceRow:
    try:
        numbers = [math.nan if each == "" else float(each) for each in line]
        step, seen, variance, squared_mean, shards, examples, loss, seconds, *rest = numbers
        is_known = all(map(math.isfinite, [step, seen, variance, squared_mean, shards, examples, seconds, *rest]))
        if not is_known or len(rest) != 2 * len(layers) or examples <= 0:
            raise ValueError("a number is missing, or out of its range")
        if not (_is_count(step, 1) and _is_count(shards, 2)):
            raise ValueError("a number is missing, or out of its range")
    except ValueError as error:
        raise MeasureError(
            f"Each line of a trace must have the numbers of one step.\nReceived: {','.join(line)[:100]!r} ({error}) in "
            f"{where}. Leave the line out."
        ) from error
    moments = StepMoments(variance, squared_mean, examples, int(shards))
    by_layer = dict(zip(layers, zip(rest[::2], rest[1::2], strict=True), strict=True))
    return TraceRow(int(step), seen, moments, None if math.isnan(loss) else loss, seconds, by_layer)


def _is_count(number: float, least: int) -> bool:
    return least <= number < 2**53 and number == int(number)
