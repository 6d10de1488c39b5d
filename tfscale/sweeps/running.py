"""How is a sweep run to its end, and gone on with where it was killed?"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfscale.errors import StudyError
from tfscale.parity.processes import Ending
from tfscale.parity.target import Target
from tfscale.sweeps.outcome import FAILED, Outcome, outcome_path, read_outcome, write_csv, write_outcome
from tfscale.sweeps.sampling import Sampler, lock, make_sampler
from tfscale.sweeps.space import Space
from tfscale.trials.identity import check_identity
from tfscale.trials.pool import Pool


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
        if not 0 < self.timeout_s <= 1e9:
            raise StudyError(f"`timeout_s` must be seconds, above 0.\nReceived: {self.timeout_s!r}.")


def run_sweep(plan: Plan, directory: Path) -> Iterator[Outcome]:
    """Yields the rows that are there already, and then each that comes, until there are as many as planned.

    Closing it ends what is under way; the rows that are there stay.

    Args:
        plan: What to do.
        directory: Of the sweep: one file for each trial, written at once; `sweep.csv` has them all.

    Raises:
        StudyError: When the directory is another sweep's, or another process runs it.
    """
    folder = directory / "trials"
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(lock(directory)):
        check_identity("sweep", directory, _identity(plan))
        folder.mkdir(exist_ok=True)
        sampler = make_sampler(plan.sampler, plan.space, seed=plan.seed, direction=plan.direction)
        outcomes = {}
        for path in sorted(folder.glob("*.json")):
            found = read_outcome(path)
            if found.number < plan.trials:
                outcomes[found.number] = found
                sampler.tell(found)
                yield found
        for outcome in _run_missing(plan, directory, sampler, [n for n in range(plan.trials) if n not in outcomes]):
            outcomes[outcome.number] = outcome
            sampler.tell(outcome)
            write_csv(directory / "sweep.csv", outcomes.values())
            yield outcome
        write_csv(directory / "sweep.csv", outcomes.values())


def _run_missing(plan: Plan, directory: Path, sampler: Sampler, numbers: list[int]) -> Iterator[Outcome]:
    if not numbers:
        return
    folder = directory / "trials"
    asked: dict[str, dict[str, Any]] = {}

    def request(number: int) -> dict[str, Any]:
        parameters = asked[str(number)] = sampler.ask(number)
        return {
            "objective": dataclasses.astuple(plan.objective),
            "number": number,
            "parameters": parameters,
            "direction": plan.direction,
            "prunes": plan.prunes,
            "folder": str(folder.absolute()),
        }

    requests = [(str(number), lambda number=number: request(number)) for number in numbers]
    pool = Pool(
        directory / "processes", at_a_time=plan.at_a_time, timeout_s=plan.timeout_s, program="tfscale.sweeps.child"
    )
    try:
        with contextlib.closing(pool.run(requests)) as running:  # type: ignore[type-var]
            for name, ending, log in running:
                yield _outcome_of(folder, int(name), asked.pop(name), ending, log, plan.timeout_s)
    finally:
        pool.close()


def _outcome_of(
    folder: Path, number: int, parameters: dict[str, Any], ending: Ending, log: str, timeout_s: float
) -> Outcome:
    """What the process has left; where it has left nothing, that is its row."""
    path = outcome_path(folder, number)
    if path.exists():
        return read_outcome(path)
    last = log.splitlines()[-1] if log else "nothing written"
    how = f"not ended after {timeout_s:g} s" if ending.timed_out else f"the process ended ({ending.statuses[0]})"
    outcome = Outcome(number, parameters, FAILED, None, f"{how}: {last}"[:300])
    write_outcome(folder, outcome)
    return outcome


def _identity(plan: Plan) -> dict[str, Any]:
    """More trials, more at a time and another deadline are the same sweep."""
    kept = ("objective", "space", "sampler", "direction", "prunes", "seed")
    return {name: each for name, each in dataclasses.asdict(plan).items() if name in kept}
