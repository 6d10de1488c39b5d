"""What came of one trial of a sweep?"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfscale.errors import StudyError

ENDED, PRUNED, FAILED = "ended", "pruned", "failed"
STATES = (ENDED, PRUNED, FAILED)
COLUMNS = ("number", "state", "value", "reason", "seconds", "device")


@dataclass(frozen=True)
class Outcome:
    """One row.

    Args:
        number: Of the trial, from 0.
        parameters: What the objective was called with.
        state: `"ended"`, `"pruned"` or `"failed"`.
        value: What it returned, or last reported; None where there is none.
        reason: Of a failure, its first line.
        seconds: That it took.
        device: On which it ran.
    """

    number: int
    parameters: Mapping[str, Any]
    state: str
    value: float | None = None
    reason: str = ""
    seconds: float = 0.0
    device: str = ""


def outcome_path(folder: Path, number: int) -> Path:
    """Where the row of a trial lies."""
    return folder / f"{number:06d}.json"


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Writes one file, which is there as a whole or not at all."""
    path = outcome_path(folder, outcome.number)
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    part.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    part.replace(path)


def read_outcome(path: Path) -> Outcome:
    """Reads one.

    Raises:
        StudyError: When it is none.
    """
    try:
        found = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        if found.state not in STATES or not isinstance(found.parameters, dict) or int(path.stem) != found.number:
            raise ValueError("it is no row of a sweep")
        if (found.value is None or not math.isfinite(found.value)) and found.state == ENDED:
            raise ValueError(f"value {found.value!r}")
        return found
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StudyError(
            f"A row of a sweep must be a file that it has written.\nReceived: {path}: {error}. Remove the file: its "
            "trial is run again."
        ) from error


def best_of(outcomes: Iterable[Outcome], direction: str) -> Outcome | None:
    """The best of those that ended; None where none has.

    Example:
        >>> from tfscale.sweeps.outcome import Outcome, best_of
        >>> rows = [Outcome(0, {}, "ended", 2.0), Outcome(1, {}, "failed"), Outcome(2, {}, "ended", 1.0)]
        >>> best_of(rows, "min").number, best_of(rows, "max").number
        (2, 0)
    """
    sign = 1 if direction == "min" else -1
    ended = [each for each in outcomes if each.state == ENDED and each.value is not None]
    return min(ended, key=lambda each: (sign * (each.value or 0.0), each.number), default=None)


def write_csv(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Writes a table with a row for each trial, in the order of their numbers."""
    ordered = sorted(outcomes, key=lambda each: each.number)
    names = sorted({name for each in ordered for name in each.parameters})
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([COLUMNS[0], *(f"parameter:{name}" for name in names), *COLUMNS[1:]])
        for each in ordered:
            own = [each.parameters.get(name, "") for name in names]
            value = "" if each.value is None else repr(each.value)
            writer.writerow([each.number, *own, each.state, value, each.reason, round(each.seconds, 3), each.device])
    part.replace(path)
