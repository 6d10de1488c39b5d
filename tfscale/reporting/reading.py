"""What has a run left in its directory?"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfscale.errors import MeasureError, ReportError
from tfscale.measure import TraceRow, read_trace

_RECORD, _SCALING, _NOISE, _SUMMARY = "run.jsonl", "scaling.csv", "noise.csv", "noise.json"
_MOST_BYTES = 200_000_000


@dataclass
class RunFiles:
    """What was found.

    Args:
        directory: Where.
        starts: Of the run, in their order: the first one, and each time that it went on.
        has_ended: Whether the last `fit` came to its end.
        epochs: By number, as they were at last.
        scaling: Rows of `scaling.csv`.
        trace: Measured steps.
        noise: The summary of what they came to.
        logs: By file of Keras's `CSVLogger`, its rows.
        saves: Seconds since 1970 of the saved states that are kept.
        problems: Files that could not be read, and why.
    """

    directory: Path
    starts: list[dict[str, Any]] = field(default_factory=list)
    has_ended: bool = False
    epochs: dict[int, dict[str, Any]] = field(default_factory=dict)
    scaling: list[dict[str, float | None]] = field(default_factory=list)
    trace: list[TraceRow] = field(default_factory=list)
    noise: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, list[dict[str, float | None]]] = field(default_factory=dict)
    saves: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_run(directory: Path) -> RunFiles:
    """Reads the directory of a run.

    Args:
        directory: As given to `dp.callbacks`.

    Raises:
        ReportError: When there is no such directory, or nothing of a run in it.
    """
    if not directory.is_dir():
        raise ReportError(
            "A report is made of the directory of a run.\n"
            f"Received: {str(directory)!r:.300}, which is none. Give the one that `dp.callbacks` was given; "
            "one of a store has to be copied here first."
        )
    found = RunFiles(directory)
    for name, read in (
        (_RECORD, _read_record),
        (_SCALING, _read_scaling),
        (_NOISE, _read_trace),
        (_SUMMARY, _read_noise),
    ):
        path = directory / name
        if path.exists():
            _try(found, path, read)
    for path in sorted(directory.glob("*.csv")):
        if path.name not in (_SCALING, _NOISE):
            _try(found, path, _read_log)
    found.saves = sorted(path.stat().st_mtime for path in directory.glob("recovery/**/state-*.index"))
    if not (found.starts or found.epochs or found.scaling or found.trace or found.logs or found.problems):
        raise ReportError(
            "A report is made of what a run has left.\n"
            f"Received: {str(directory)!r:.300}, with no {_RECORD}, {_SCALING} or {_NOISE}. Train with "
            "`callbacks=dp.callbacks(DIRECTORY)`; the files come with the first epoch."
        )
    return found


def _try(found: RunFiles, path: Path, read: Any) -> None:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("larger than 200 MB")
        read(found, path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, csv.Error, MeasureError) as error:
        found.problems.append(
            f"{path.name}: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        )


def _read_record(found: RunFiles, path: Path) -> None:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
            kind = line["kind"]
            if kind == "start":
                found.starts.append(
                    {**line, "at": float(line["at"]), "epoch": int(line["epoch"]), "step": int(line["step"])}
                )
                found.has_ended = False
            elif kind == "epoch":
                logs = {str(name): _number(value) for name, value in line["logs"].items()}
                times = {name: float(line[name]) for name in ("total_s", "first_call_s", "train_s", "validation_s")}
                times |= {name: float(line[name]) for name in ("input_s", "sending_s") if name in line}
                found.epochs[int(line["epoch"])] = {"logs": logs, "step": int(line["step"]), **times}
            elif kind == "end":
                found.has_ended = True
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # A kill may leave half of the last one.
            if number < len(lines):
                found.problems.append(f"{path.name}: line {number} is none of a run")


def _read_scaling(found: RunFiles, path: Path) -> None:
    rows = [row for row in _read_csv(path) if row.get("epoch") is not None]
    # A run that went on may have made an epoch again.
    found.scaling = list({row["epoch"]: row for row in rows}.values())


def _read_trace(found: RunFiles, path: Path) -> None:
    found.trace = read_trace(path)


def _read_noise(found: RunFiles, path: Path) -> None:
    noise = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(noise, dict):
        raise ValueError("no object of JSON")
    found.noise = noise


def _read_log(found: RunFiles, path: Path) -> None:
    """A file of `CSVLogger`; any other table is not of the run."""
    rows = _read_csv(path)
    if rows and "epoch" in rows[0] and len(rows[0]) > 1:
        found.logs[path.name] = rows


def _read_csv(path: Path) -> list[dict[str, float | None]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{str(name): _number(value) for name, value in row.items()} for row in csv.DictReader(file)]


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
