"""What do the files say that a plan is made from: traces, what lies beside them, a study?"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfscale.errors import MeasureError, StudyError
from tfscale.measure import TraceRow, read_trace
from tfscale.study.result import read_result

# What all runs of one model have in common; a study's own searching may vary some of it.
_FACTS = ("parameters", "trainable_parameters", "weights", "optimizer", "momentum")


@dataclass(frozen=True)
class Trace:
    """One measured run.

    Args:
        path: Of its file.
        rows: Its measured steps.
        told: What lies beside it, as JSON; empty where nothing does.
    """

    path: str
    rows: tuple[TraceRow, ...]
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Of the run, up to its last measured one."""
        return self.rows[-1].step

    @property
    def batch(self) -> float:
        """Examples of a step: over the whole run, the middle one of its rows."""
        return sorted(row.moments.examples for row in self.rows)[len(self.rows) // 2]

    @property
    def replicas(self) -> int:
        """On which it ran; 1 where nothing says so."""
        return int(self.told.get("replicas", 1))

    @property
    def parameters(self) -> int | None:
        """Numbers in a gradient; None where nothing says so."""
        return self.told.get("trainable_parameters", self.told.get("parameters"))

    @property
    def examples_per_epoch(self) -> float | None:
        """Of the data; None where nothing says so."""
        return self.told.get("examples_per_epoch")

    @property
    def clipped_share(self) -> float:
        """Share of the measured steps in which the optimizer clips; 0 where nothing says so."""
        return float(self.told.get("clipped_share", 0.0))

    @property
    def approximate(self) -> tuple[str, ...]:
        """Why what was measured is not exact; empty where it is, and where nothing says so."""
        return tuple(self.told.get("approximate", ()))

    @property
    def step_times(self) -> dict[int, float]:
        """Seconds of a step of one replica by its examples, as they were timed; empty where they were not."""
        return {int(batch): float(seconds) for batch, seconds in self.told.get("step_times", {}).items()}

    @property
    def seconds_per_step(self) -> float | None:
        """Of the run itself: what it measured and saved is in it."""
        first, last = self.rows[0], self.rows[-1]
        return (last.seconds - first.seconds) / (last.step - first.step) if last.step > first.step else None


def read_one(path: str | os.PathLike[str]) -> Trace:
    """Reads a trace, or the `noise.csv` of a directory, and what lies beside it.

    Raises:
        MeasureError: When one cannot be read, the trace is empty, or they are of two runs.
    """
    file = Path(path)
    file = file / "noise.csv" if file.is_dir() else file
    rows = read_trace(file)
    if not rows:
        raise MeasureError(f"A trace must have measured steps.\nReceived: {str(file)!r}, with none. Train for longer.")
    batches = {row.moments.examples for row in rows}
    # The last batch of an epoch may be smaller; half of the rows and more are alike in one run.
    common = max(batches, key=lambda each: sum(row.moments.examples == each for row in rows))
    if sum(row.moments.examples == common for row in rows) * 2 < len(rows):
        raise MeasureError(
            "A trace must be of one batch.\n"
            f"Received: {str(file)!r}, with batches from {min(batches):g} to {max(batches):g}. Measure at one of them."
        )
    return Trace(str(file), tuple(rows), _read_beside(file, len(rows)))


def _read_beside(file: Path, num_rows: int) -> dict[str, Any]:
    beside = file.with_name(f"{file.name.removesuffix('.csv')}.json")
    if not beside.exists():
        return {}
    try:
        told = json.loads(beside.read_text(encoding="utf-8"))
        kinds: dict[str, type] = {"model": str, "optimizer": str, "weights": str}
        kinds |= {"parameters": int, "trainable_parameters": int, "replicas": int}
        for name, kind in kinds.items():
            value: Any = told.get(name, kind())
            is_right = isinstance(value, kind) and not isinstance(value, bool)
            if not is_right or (kind is int and not 0 <= value < 2**53):
                raise ValueError(f"{name} is {str(value)[:100]!r}")
        momentum = told.get("momentum", 0.0)
        if isinstance(momentum, bool) or not isinstance(momentum, int | float) or not math.isfinite(momentum):
            raise ValueError(f"momentum is {str(momentum)[:100]!r}")
        _check_limits(told)
        if told.get("replicas", 1) < 1:
            raise ValueError("no replicas")
        times = told.get("step_times", {})
        if not all(b.isdecimal() and int(b[:15]) > 0 and math.isfinite(t) and t > 0 for b, t in times.items()):
            raise ValueError("step_times are no times")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise MeasureError(
            f"What lies beside a trace must be as it was written.\nReceived: {str(beside)!r}: {error}. "
            "Remove it, and give --parameters."
        ) from error
    measured = told.get("steps_measured", 0)
    if not isinstance(measured, int) or measured > num_rows:
        raise MeasureError(
            "A trace and what lies beside it must be of one run.\n"
            f"Received: {num_rows} rows in {str(file)!r}, and {str(measured)[:100]} steps in {str(beside)!r}. "
            "Keep both files of a run together."
        )
    return dict(told)


def _check_limits(told: Mapping[str, Any]) -> None:
    """Of what a plan makes cautions."""
    for name, most in (("clipped_share", 1.0), ("examples_per_epoch", 1e15)):
        # Of a run that ended within its first epoch nothing is known of that.
        value = 0.0 if told.get(name) is None else told[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ValueError(f"{name} is {str(value)[:100]!r}")
    approximate = told.get("approximate", [])
    if not isinstance(approximate, list) or not all(isinstance(each, str) for each in approximate):
        raise ValueError(f"approximate is {str(approximate)[:100]!r}")


def read_all(paths: Sequence[str]) -> list[Trace]:
    """Reads traces of one model.

    Raises:
        MeasureError: As `read_one`; and when they are of several models or optimizers.
    """
    traces = [read_one(path) for path in paths]
    for trace in traces[1:]:
        for name in ("model", *_FACTS):
            first, other = (_without_counter(name, each.told.get(name)) for each in (traces[0], trace))
            if first is not None and other is not None and first != other:
                raise MeasureError(
                    "Traces must be of one model and one optimizer.\n"
                    f"Received: {name} {str(first)[:200]!r} in {traces[0].path!r}, and {str(other)[:200]!r} in "
                    f"{trace.path!r}. Give the traces of one model."
                )
    return traces


def _without_counter(name: str, value: Any) -> Any:
    # Keras counts the models of a process: the same one, built again, is "sequential_1".
    return re.sub(r"_\d+$", "", value) if name == "model" and isinstance(value, str) else value


def of_unknown_model(path: str) -> str:
    """What is said of a trace with nothing beside it, where it is put beside others."""
    return f"nothing beside {path!r} tells whether it is of the same model"


def check_same_model(trace: Trace, models: Iterable[Mapping[str, Any]], where: str) -> None:
    """Refuses what was trained with another model than that of a trace.

    What differs among the models themselves, as where a study searches it, is left out.

    Args:
        trace: With what lies beside it.
        models: What `gradients.model_facts` says of each; all are models that were trained.
        where: They are from, in words.

    Raises:
        MeasureError: Naming the first difference.
    """
    given = list(models)
    for name in _FACTS:
        own, known = trace.told.get(name), {each[name] for each in given if name in each}
        if own is not None and len(known) == 1 and own not in known:
            raise MeasureError(
                "What the critical batch is taken from must be of the trace's model and optimizer.\n"
                f"Received: {name} {str(own)[:200]!r} in {trace.path!r}, and {str(known.pop())[:200]!r} in {where}. "
                "Measure that model: `tfscale measure BUILD DATA`."
            )


def models_of(directory: str) -> list[Mapping[str, Any]]:
    """What the trials of a study say of their models; nothing where only its table is there.

    Raises:
        StudyError: When the file of a trial cannot be read.
    """
    return [each.model for each in map(read_result, sorted(Path(directory, "trials").glob("*.json")))]


def goal_of(directory: str) -> str:
    """The target of a study in words; empty where only its table is there.

    Raises:
        StudyError: When its `study.json` cannot be read.
    """
    path = Path(directory) / "study.json"
    if not path.is_file():
        return ""
    try:
        goal = json.loads(path.read_text(encoding="utf-8"))["experiment"]["goal"]
        return f"{goal['metric']} {'<=' if goal['is_least'] else '>='} {float(goal['value']):g}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StudyError(
            f"The directory of a study must have a study.json that can be read.\nReceived: {path}: {error}."
        ) from error
