"""What was tried, and what came of it?"""

from __future__ import annotations

import csv
import json
import math
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tfscale.errors import StudyError

COLUMNS = ("batch", "point", "seed", "steps", "reason", "seconds", "device", "commit")
REACHED = "reached"
"""The reason for which a trial ends well; all others leave it without steps."""
BUDGET = "budget"
"""The reason of a trial that was given no more steps."""


@dataclass(frozen=True)
class Trial:
    """One training run of a study.

    Args:
        batch: Examples of a step.
        point: Number of the point of the search; the same one is tried at every batch.
        seed: Of weights and of the order of examples.
        parameters: What `build` is given besides the batch.
    """

    batch: int
    point: int
    seed: int
    parameters: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """That of its file."""
        return f"b{self.batch:07d}-p{self.point:03d}-s{self.seed:02d}"


@dataclass(frozen=True)
class TrialResult:
    """What came of one.

    Args:
        trial: Which.
        steps: To the target; infinite where it was not reached.
        reason: Why it ended: `"reached"`, `"2x behind"`, `"budget"`, `"not finite"` or an error's first line.
        seconds: That it took.
        device: On which it ran.
        commit: Of the user's code, if that is known.
        evaluations: Pairs of a step and the metric.
        model: What tells it from other models; empty where the trial ended before there was one.
    """

    trial: Trial
    steps: float
    reason: str
    seconds: float = 0.0
    device: str = ""
    commit: str = ""
    evaluations: tuple[tuple[int, float], ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)


def write_result(folder: Path, result: TrialResult) -> None:
    """Writes one file, which is there as a whole or not at all."""
    content = asdict(result) | {"steps": None if math.isinf(result.steps) else result.steps}
    part = folder / f"{result.trial.name}.part{os.getpid()}"
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(folder / f"{result.trial.name}.json")


def read_result(path: Path) -> TrialResult:
    """Reads one.

    Raises:
        StudyError: When it is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        steps = math.inf if content["steps"] is None else float(content["steps"])
        evaluations = tuple((int(step), float(value)) for step, value in content["evaluations"])
        # Files of earlier versions have none.
        if not all(isinstance(each, str | int | float) for each in dict(content.get("model", {})).values()):
            raise ValueError("what it says of its model are no facts")
        return TrialResult(**content | {"trial": Trial(**content["trial"]), "steps": steps, "evaluations": evaluations})
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StudyError(
            f"A result must be a file that a study has written.\nReceived: {path}: {error}. Remove the file: its trial "
            "is run again."
        ) from error


def write_csv(path: Path, results: Iterable[TrialResult]) -> None:
    """Writes a table with a row for each trial, in the order of their names; the parameters are in their own order."""
    ordered = sorted(results, key=lambda each: each.trial.name)
    names = list(dict.fromkeys(name for each in ordered for name in each.trial.parameters))
    part = path.with_name(f"{path.name}.part{uuid.uuid4().hex}")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS[:3], *(f"parameter:{name}" for name in names), *COLUMNS[3:]])
        for each in ordered:
            trial = each.trial
            own = [trial.parameters.get(name, "") for name in names]
            steps = "inf" if math.isinf(each.steps) else repr(each.steps)
            rest = [steps, each.reason, round(each.seconds, 3), each.device, each.commit]
            writer.writerow([trial.batch, trial.point, trial.seed, *own, *rest])
    part.replace(path)


def read_results(path: str | os.PathLike[str]) -> list[TrialResult]:
    r"""Reads the table of a study: a file, or the `study.csv` of a directory.

    Args:
        path: Of either.

    Raises:
        StudyError: When it is not there, or none of these tables.

    Example:
        >>> import pathlib, tempfile
        >>> from tfscale.study import read_results
        >>> path = pathlib.Path(tempfile.mkdtemp(), "study.csv")
        >>> rows = "16,0,0,0.1,70.5,reached,1,cpu,\n16,1,0,9.9,inf,not finite,1,cpu,\n"
        >>> _ = path.write_text("batch,point,seed,parameter:rate,steps,reason,seconds,device,commit\n" + rows)
        >>> [(each.trial.parameters["rate"], each.steps) for each in read_results(path)]
        [(0.1, 70.5), (9.9, inf)]
    """
    file = Path(path)
    file = file / "study.csv" if file.is_dir() else file
    try:
        with file.open(encoding="utf-8", newline="") as text:
            reader = csv.DictReader(text)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise ValueError(f"no column {missing[0]!r}")
            return [_from_row(row) for row in reader]
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise StudyError(
            f"A study must be a table with the columns {', '.join(COLUMNS)}.\nReceived: {file}: {error}. "
            "`tfscale study` writes one."
        ) from error


def _from_row(row: Mapping[str, Any]) -> TrialResult:
    if None in row or None in row.values():
        raise ValueError(
            f"a row that begins with {','.join(list(row.values())[:3])[:100]!r} has not one value a column"
        )
    prefix = "parameter:"
    own = {name.removeprefix(prefix): float(each) for name, each in row.items() if name.startswith(prefix) and each}
    trial = Trial(int(row["batch"]), int(row["point"]), int(row["seed"]), own)
    steps = float(row["steps"])
    if not steps > 0 or trial.batch < 1:
        raise ValueError(f"batch {trial.batch} with {steps} steps")
    seconds = float(row["seconds"])
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} seconds")
    return TrialResult(trial, steps, row["reason"], seconds, row["device"], row["commit"])
