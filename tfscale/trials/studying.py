"""How is a study run to its end, and gone on with where it was killed?"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tfscale.errors import StudyError
from tfscale.parity.target import Target, load
from tfscale.recovery.lock import DirectoryLock
from tfscale.study.result import Trial, TrialResult, read_result, write_csv, write_result
from tfscale.study.schedule import BEHIND, Parameter, Settings, least_steps, next_trials
from tfscale.trials.continuing import go_on
from tfscale.trials.engines import OPTUNA, PROCESSES, engine_of
from tfscale.trials.experiment import Experiment
from tfscale.trials.looking import check_script
from tfscale.trials.pool import Pool
from tfscale.trials.shared_runner import Runner
from tfscale.trials.training import names_of, read_arrays

_GROUPS = {"momentum": "one minus", "beta_1": "one minus", "beta_2": "one minus"}


class Ended(NamedTuple):
    """What has come of a study."""

    results: list[TrialResult]
    """Of all trials."""
    left: list[Trial]
    """Trials of the last round that were not run; empty where the study has ended."""


def find_parameters(build: Target, names: tuple[str, ...]) -> tuple[Parameter, ...]:
    """What is searched, with the defaults of the arguments of `build` as the recipe's values.

    Raises:
        StudyError: When `build` has no such argument, or no positive default for it.
    """
    known = names_of(load(build))
    found = []
    for name in names:
        centre = known.get(name)
        if isinstance(centre, bool) or not isinstance(centre, int | float) or not centre > 0:
            raise StudyError(
                f"`{build}` must take {name!r}, with the recipe's value as its default.\n"
                f"Received: {', '.join(known) or 'no arguments'}. For example `def build(rate=0.1): ...`."
            )
        kind = "rate" if name == names[0] else _GROUPS.get(name, "factor")
        found.append(Parameter(name, float(centre), kind))
    return tuple(found)


def count_examples(data: Target) -> int:
    """Of training."""
    return read_arrays(load(data)).num_examples


def run_study(
    experiment: Experiment,
    settings: Settings,
    directory: Path,
    *,
    at_a_time: int | None = None,
    most_s: float = math.inf,
    engine: str = PROCESSES,
    silent_s: float = 60.0,
    on_result: Callable[[TrialResult, int], None] = lambda result, left: None,
) -> Ended:
    """Runs what is missing of a study; returns the results of all of it, and what was not run.

    Args:
        experiment: What is trained.
        settings: What is tried.
        directory: Of the study: one file for each trial, written at once; `study.csv` has them all.
        at_a_time: Trials side by side; None for as many as devices.
        most_s: After so many seconds no further trial is begun.
        engine: Who runs the trials, one of `engines.ENGINES`.
        silent_s: After so many seconds without a sign another host is gone, where several share the study.
        on_result: Told of each trial that has ended, and how many are left of the round.

    Raises:
        StudyError: When the directory is that of another study, or another process has it; when the engine is not
            installed; and before any trial, when the script fails or the target is none of the model's metrics.
    """
    own = DirectoryLock(directory)
    holder = None if engine == OPTUNA else own.take()
    if holder is not None:
        raise StudyError(
            f"A study is run by one process at a time.\nReceived: {directory}, which {holder}. Wait for that one to "
            f"end, give each study a directory of its own, or --engine {OPTUNA} to each host that takes part in one."
        )
    folder = "processes" if engine != OPTUNA else f"processes/{socket.gethostname()[:60]}-{os.getpid()}"
    pool = Pool(directory / folder, at_a_time=at_a_time)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with engine_of(engine, pool, directory, experiment, at_a_time=at_a_time, silent_s=silent_s) as runner:
            return _run(experiment, settings, directory, pool, runner, most_s, on_result)
    finally:
        pool.close()
        own.release()


def _run(
    experiment: Experiment,
    settings: Settings,
    directory: Path,
    pool: Pool,
    runner: Runner,
    most_s: float,
    on_result: Callable[[TrialResult, int], None],
) -> Ended:
    folder = directory / "trials"
    settings, budget = go_on(directory, experiment, settings), experiment.budget_examples
    folder.mkdir(parents=True, exist_ok=True)
    results = {each.trial.name: each for each in map(read_result, sorted(folder.glob("*.json")))}
    ends_s, commit = time.monotonic() + most_s, _commit()
    if not results:
        check_script(pool, _asked(experiment, settings.recipe()))
    while time.monotonic() < ends_s and (left := next_trials(settings, results.values(), budget_examples=budget)):
        waiting = {each.name: each for each in left}

        def request(trial: Trial) -> dict[str, Any]:
            # What it has left under a smaller budget is not what it leaves now.
            (folder / f"{trial.name}.json").unlink(missing_ok=True)
            return _request(experiment, trial, folder, least_steps(results.values(), trial.batch))

        requests = [(each.name, lambda each=each: request(each)) for each in left]
        with contextlib.closing(runner.run(requests)) as running:  # type: ignore[type-var]
            for name, ending, log in running:
                results[name] = _result_of(folder, waiting.pop(name), ending.succeeded, log, commit)
                write_csv(directory / "study.csv", results.values())
                on_result(results[name], len(waiting))
                if time.monotonic() > ends_s:
                    break
    write_csv(directory / "study.csv", results.values())
    return Ended(list(results.values()), next_trials(settings, results.values(), budget_examples=budget))


def _asked(experiment: Experiment, trial: Trial) -> dict[str, Any]:
    """What a process is to be told to make the model of a trial."""
    return {
        "build": dataclasses.astuple(experiment.build),
        "data": dataclasses.astuple(experiment.data),
        "goal": dataclasses.asdict(experiment.goal),
        "trial": dataclasses.asdict(trial) | {"parameters": dict(trial.parameters)},
        "micro_batch": experiment.micro_batch,
    }


def _request(experiment: Experiment, trial: Trial, folder: Path, least: float) -> dict[str, Any]:
    return {
        **_asked(experiment, trial),
        "limit": min(1e15, BEHIND * least),
        "budget": max(1, experiment.budget_examples // trial.batch),
        "folder": str(folder),
    }


def _result_of(folder: Path, trial: Trial, succeeded: bool, log: str, commit: str) -> TrialResult:
    """What the process has left; where it has left nothing, that is its result."""
    path = folder / f"{trial.name}.json"
    if path.exists():
        result = dataclasses.replace(read_result(path), commit=commit)
    else:
        last = log.splitlines()[-1] if log else "nothing written"
        reason = f"the process ended{'' if succeeded else ' badly'}: {last}"[:300]
        result = TrialResult(trial, math.inf, reason, commit=commit)
    write_result(folder, result)
    return result


def _commit() -> str:
    """Of the user's code, where it is in a repository."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
