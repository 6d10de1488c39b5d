"""How does a script run a sweep, and go on meanwhile?"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, as_completed
from pathlib import Path
from types import TracebackType
from typing import Any

from tfscale.errors import StudyError
from tfscale.parity.target import find_target
from tfscale.sweeps.outcome import Outcome, best_of
from tfscale.sweeps.running import Plan, run_sweep
from tfscale.sweeps.space import parse_space


class Sweep:
    """A sweep under way: one future for each trial, in the order of their numbers.

    Args:
        plan: What to do.
        directory: Where to.

    Attributes:
        futures: Their results are `Outcome`s; that of a failed trial too: it has `state` and `reason`.
    """

    def __init__(self, plan: Plan, directory: Path):
        self._plan, self._directory = plan, directory
        self._is_cancelled = threading.Event()
        self.futures: list[Future[Outcome]] = [Future() for _ in range(plan.trials)]
        self._thread = threading.Thread(target=self._run, name="tfscale sweep", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with contextlib.closing(run_sweep(self._plan, self._directory)) as outcomes:
                for outcome in outcomes:
                    self.futures[outcome.number].set_result(outcome)
                    if self._is_cancelled.is_set():
                        break
        except BaseException as error:
            for future in self.futures:
                if not future.done():
                    future.set_exception(error)
        for future in self.futures:
            future.cancel()

    def __iter__(self) -> Iterator[Outcome]:
        """Yields rows as they come."""
        for future in as_completed(self.futures):
            if not future.cancelled():
                yield future.result()

    def results(self) -> list[Outcome]:
        """Waits for all rows, and returns them in the order of their numbers."""
        return sorted(self, key=lambda each: each.number)

    def best(self) -> Outcome:
        """Waits for all rows, and returns the best.

        Raises:
            StudyError: When no trial has a result.
        """
        rows = self.results()
        found = best_of(rows, self._plan.direction)
        if found is None:
            reason = next((each.reason for each in rows if each.reason), "no row")
            raise StudyError(f"No trial has a result.\nReceived: {len(rows)} rows, the first with {reason!r}.")
        return found

    def cancel(self) -> None:
        """Begins no further trial; those under way end when the next one of them has, and leave no row."""
        self._is_cancelled.set()

    def __enter__(self) -> Sweep:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.cancel()
        self._thread.join()


def sweep(
    objective: str | Callable[..., Any],
    space: Mapping[str, Any],
    *,
    trials: int = 20,
    directory: str | os.PathLike[str] | None = None,
    at_a_time: int | None = None,
    sampler: str = "random",
    prune: bool = False,
    direction: str = "min",
    seed: int = 0,
    timeout_s: float = 86400.0,
) -> Sweep:
    """Calls a function with many settings, each in a process of its own, side by side on the devices that are here.

    Returns at once; the result has a future for each trial. What a function raises is a row, and the others go on.

    Args:
        objective: A function at the top level of a module or script, or "train.py:objective". Gets what the space
            names, and a `trial` to report to if it has such an argument; returns a number.
        space: By name a list of values, one value, or `{"low": 1e-4, "high": 1, "log": True}`.
        trials: How many, in all.
        directory: Where rows are kept: a sweep that was killed goes on with them. None for one of its own.
        at_a_time: Side by side; None for as many as GPUs, or else cores.
        sampler: `"random"`, or `"optuna"` where that is installed.
        prune: Whether `trial.report` ends a trial that is behind the median of the others.
        direction: `"min"` or `"max"`.
        seed: Of the draws.
        timeout_s: Of a trial.

    Raises:
        ParityError: When there is no such function.
        StudyError: When an argument cannot be, or, from the results, when the directory is another sweep's.

    Example:
        >>> import tfscale
        >>> with tfscale.sweep("math:sqrt", {"x": [4.0]}, trials=0) as sweep:
        ...     pass
        Traceback (most recent call last):
        tfscale.errors.StudyError: `trials` must be a positive integer.
        Received: trials=0. See docs/errors.md#studyerror.
    """
    target = find_target(objective, "objective")
    plan = Plan(
        target,
        parse_space(space),
        trials,
        sampler=sampler,
        direction=direction,
        prunes=prune,
        seed=seed,
        at_a_time=at_a_time,
        timeout_s=timeout_s,
    )
    where = Path(tempfile.mkdtemp(prefix="tfscale_sweep_")) if directory is None else Path(directory)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return Sweep(plan, where)
