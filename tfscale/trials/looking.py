"""Does a user's script make a model that has the target's metric? Asked once, before any trial."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfscale.errors import StudyError, TfscaleError
from tfscale.parity.target import Target, load
from tfscale.study.goal import Goal
from tfscale.study.result import Trial
from tfscale.trials.pool import Pool
from tfscale.trials.training import make_evaluation, make_model, read_arrays

_NAME = "look"
_SHOWN_CHARACTERS = 1000


def look(request: Mapping[str, Any]) -> None:
    """Makes the model of a request in this process, evaluates it once, and leaves in a file what is wrong."""
    trial, error = Trial(**request["trial"]), None
    try:
        build, data = (load(Target(*request[name])) for name in ("build", "data"))
        arrays = read_arrays(data)
        make_evaluation(make_model(build, trial, request["micro_batch"]), arrays, Goal(**request["goal"]))()
    except TfscaleError as own:
        error = str(own)
    except Exception as other:
        error = _of_the_script(trial, f"{type(other).__name__}: {other}")
    Path(request["answer"]).write_text(json.dumps({"error": error}), encoding="utf-8")


def check_script(pool: Pool, request: Mapping[str, Any]) -> None:
    """Lets a process of its own make the model of a request, and evaluate it.

    Args:
        pool: Runs it; the answer is put into its folder.
        request: As of a trial.

    Raises:
        StudyError: When the target is none of the model's metrics, or the script fails.
    """
    pool.folder.mkdir(parents=True, exist_ok=True)
    answer = pool.folder / f"{_NAME}.json"
    answer.unlink(missing_ok=True)
    content = {**request, "answer": str(answer.absolute())}
    [(_, _, log)] = pool.run([(_NAME, lambda: content)])
    try:
        error = json.loads(answer.read_text(encoding="utf-8"))["error"]
    except (OSError, ValueError, KeyError, TypeError) as missing:
        last = log.splitlines()[-1] if log else "nothing written"
        raise StudyError(_of_the_script(Trial(**request["trial"]), f"a process that ended: {last}")) from missing
    if error is not None:
        raise StudyError(error)


def _of_the_script(trial: Trial, received: str) -> str:
    values = ", ".join(f"{name}={value:g}" for name, value in trial.parameters.items())
    return (
        "`build` and `data` must work with the recipe's own values, before any trial is run.\n"
        f"Received: {received[:_SHOWN_CHARACTERS]} (with {values} at batch {trial.batch}). Correct the script."
    )
