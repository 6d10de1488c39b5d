"""How is a sweep run to its end, and gone on with where it was killed?"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from tfscale.errors import StudyError
from tfscale.launch.screen import Lines
from tfscale.parity.processes import Ending
from tfscale.parity.target import Target
from tfscale.sweeps.outcome import FAILED, Outcome, outcome_path, read_outcome, write_csv, write_outcome
from tfscale.sweeps.sampling import Sampler, make_sampler
from tfscale.sweeps.space import Space
from tfscale.trials.identity import check_identity
from tfscale.trials.pool import Pool
from tfscale.trials.shared_runner import Runner, SharedRunner
from tfscale.trials.sharing import LOST, Claims, lock

_Rows = Generator[Outcome, None, None]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a sweep does.

    Args:
        objective: Called once for each trial; returns a number.
        space: From which its arguments are drawn.
        trials: How many, in all.
        sampler: `"random"` or `"optuna"`.
        direction: `"min"` or `"max"`.
        prunes: Whether trials that are behind end.
        seed: Of the draws.
        at_a_time: Side by side; None for as many as devices.
        timeout_s: Of a trial.
        is_shared: Whether other hosts run it too, in the same directory.
        silent_s: After so many seconds without a sign another host is gone.
    """

    objective: Target
    space: Space
    trials: int
    sampler: str = "random"
    direction: str = "min"
    prunes: bool = False
    seed: int = 0
    at_a_time: int | None = None
    timeout_s: float = 86400.0
    is_shared: bool = False
    silent_s: float = 60.0

    def __post_init__(self) -> None:
        counts = {"trials": self.trials, "at_a_time": 1 if self.at_a_time is None else self.at_a_time}
        for name, value in counts.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise StudyError(f"`{name}` must be a positive integer.\nReceived: {name}={value!r}.")
        for name, known in (("sampler", ("random", "optuna")), ("direction", ("min", "max"))):
            if getattr(self, name) not in known:
                raise StudyError(
                    f"`{name}` must be {' or '.join(map(repr, known))}.\nReceived: {getattr(self, name)!r}."
                )
        for name in ("timeout_s", "silent_s"):
            if not 0 < getattr(self, name) <= 1e9:
                raise StudyError(f"`{name}` must be seconds, above 0.\nReceived: {getattr(self, name)!r}.")


def run_sweep(plan: Plan, directory: Path, screen: Lines | None = None) -> _Rows:
    """Yields the rows that are there already, and then each that comes, until there are as many as planned.

    Closing it ends what is under way; the rows that are there stay.

    Args:
        plan: What to do.
        directory: Of the sweep: one file for each trial, written at once; `sweep.csv` has them all.
        screen: Shows what the trials write; None leaves it to their logs.

    Raises:
        StudyError: When the directory is another sweep's, or another process runs it.
    """
    folder = directory / "trials"
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(lock(directory, "sweep", "--shared", is_shared=plan.is_shared)):
        check_identity("sweep", directory, _identity(plan))
        folder.mkdir(exist_ok=True)
        journal = directory / "journal.log" if plan.is_shared else None
        sampler = make_sampler(plan.sampler, plan.space, seed=plan.seed, direction=plan.direction, journal=journal)
        outcomes: dict[int, Outcome] = {}
        for path in sorted(folder.glob("*.json")):
            found = read_outcome(path)
            if found.number < plan.trials:
                outcomes[found.number] = found
                sampler.tell(found)
                yield found
        pool = Pool(
            directory / "processes",
            at_a_time=plan.at_a_time,
            timeout_s=plan.timeout_s,
            program="tfscale.sweeps.child",
            screen=screen,
        )
        try:
            missing = [number for number in range(plan.trials) if number not in outcomes]
            with contextlib.ExitStack() as stack:
                runner = stack.enter_context(_runner(plan, pool, directory))
                rows = stack.enter_context(contextlib.closing(_run_missing(plan, folder, sampler, runner, missing)))
                for outcome in rows:
                    outcomes[outcome.number] = outcome
                    sampler.tell(outcome)
                    write_csv(directory / "sweep.csv", outcomes.values())
                    yield outcome
        finally:
            pool.close()
        write_csv(directory / "sweep.csv", outcomes.values())


@contextlib.contextmanager
def _runner(plan: Plan, pool: Pool, directory: Path) -> Iterator[Runner]:
    """This host alone, or with all that share the directory."""
    if not plan.is_shared:
        yield pool
        return

    def is_done(name: str) -> bool:
        return outcome_path(directory / "trials", int(name)).exists()

    with Claims(directory, plan.silent_s, is_done) as claims:
        yield SharedRunner(pool, claims, is_done)


def _run_missing(plan: Plan, folder: Path, sampler: Sampler, runner: Runner, numbers: Sequence[int]) -> _Rows:
    # What another host draws, its row says.
    asked: dict[int, dict[str, Any]] = {}

    def request(number: int) -> dict[str, Any]:
        parameters = asked[number] = sampler.ask(number)
        return {
            "objective": dataclasses.astuple(plan.objective),
            "number": number,
            "parameters": parameters,
            "direction": plan.direction,
            "prunes": plan.prunes,
            "folder": str(folder.absolute()),
        }

    requests = [(f"{number:06d}", lambda number=number: request(number)) for number in numbers]
    with contextlib.closing(runner.run(requests)) as running:  # type: ignore[type-var]
        for name, ending, log in running:
            yield _outcome_of(folder, int(name), asked.pop(int(name), {}), ending, log, plan.timeout_s)


def _outcome_of(
    folder: Path, number: int, parameters: dict[str, Any], ending: Ending, log: str, timeout_s: float
) -> Outcome:
    """What the process has left; where it has left nothing, that is its row."""
    path = outcome_path(folder, number)
    if path.exists():
        return read_outcome(path)
    last = log.splitlines()[-1] if log else "nothing written"
    how = f"not ended after {timeout_s:g} s" if ending.timed_out else f"the process ended ({ending.statuses[0]})"
    reason = LOST if log == LOST else f"{how}: {last}"
    outcome = Outcome(number, parameters, FAILED, None, reason[:300])
    write_outcome(folder, outcome)
    return outcome


def _identity(plan: Plan) -> dict[str, Any]:
    """More trials, more at a time and another deadline are the same sweep."""
    kept = ("objective", "space", "sampler", "direction", "prunes", "seed")
    return {name: each for name, each in dataclasses.asdict(plan).items() if name in kept}
