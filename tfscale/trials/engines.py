"""Who runs the trials of a study: processes of this host, those of several hosts, or Ray?

What is tried next is a function of the results alone, so it does not matter who has run them, or in which order.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from tfscale.errors import StudyError
from tfscale.study.result import read_result
from tfscale.study.schedule import is_cut_short
from tfscale.trials.experiment import Experiment
from tfscale.trials.optuna_journal import OptunaJournal
from tfscale.trials.pool import Pool
from tfscale.trials.shared_runner import Runner, SharedRunner
from tfscale.trials.sharing import Claims, lock

PROCESSES, OPTUNA, RAY = ENGINES = ("processes", "optuna", "ray")


@contextlib.contextmanager
def engine_of(
    name: str, pool: Pool, directory: Path, experiment: Experiment, *, at_a_time: int | None, silent_s: float
) -> Iterator[Runner]:
    """What runs the trials of a study, and is ended with the context.

    Args:
        name: One of `ENGINES`.
        pool: Of this host.
        directory: Of the study, which is there.
        experiment: Of the study.
        at_a_time: Trials side by side; None for as many as devices.
        silent_s: After so many seconds without a sign another host is gone.

    Raises:
        StudyError: When the engine is not installed, or the directory is used by hosts that do not share it.
    """
    with contextlib.closing(lock(directory, "study", f"--engine {OPTUNA}", is_shared=name == OPTUNA)):
        if name == PROCESSES:
            yield pool
        elif name == RAY:
            if importlib.util.find_spec("ray") is None:
                raise StudyError(
                    "The engine 'ray' needs Ray.\nReceived: it is not installed. `pip install 'tfscale[ray]'`, or "
                    f"leave out --engine: the trials run on this host, or on several with --engine {OPTUNA}."
                )
            from tfscale.trials.ray_pool import RayPool

            with contextlib.closing(RayPool(at_a_time)) as ray_pool:
                yield ray_pool
        else:
            yield from _shared(pool, directory, experiment, silent_s)


def _shared(pool: Pool, directory: Path, experiment: Experiment, silent_s: float) -> Iterator[Runner]:
    folder, budget = directory / "trials", experiment.budget_examples
    journal = OptunaJournal(directory / "journal.log", str(experiment.goal))

    def is_done(name: str) -> bool:
        path = folder / f"{name}.json"
        return path.exists() and not is_cut_short(read_result(path), budget)

    def tell() -> None:
        journal.add(map(read_result, sorted(folder.glob("*.json"))))

    # With another budget a trial is another one.
    with Claims(directory / "shared" / str(budget), silent_s, is_done) as claims:
        yield SharedRunner(pool, claims, is_done, tell)
        tell()
