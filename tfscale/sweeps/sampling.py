"""Which settings does a trial get: drawn by chance, or by what Optuna has learnt?"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any, Protocol

from tfscale.sweeps.outcome import ENDED, PRUNED, Outcome
from tfscale.sweeps.space import Choice, Space, draw
from tfscale.trials.with_optuna import import_optuna, journal_storage

# By which a trial of Optuna, which counts its own, is known as one of the sweep.
_NUMBER = "number"


class Sampler(Protocol):
    """Where settings come from."""

    def ask(self, number: int) -> dict[str, Any]:
        """The settings of a trial that is about to start."""
        ...

    def tell(self, outcome: Outcome) -> None:
        """What came of it."""
        ...


class RandomSampler:
    """Draws each trial by its number alone.

    Args:
        space: To draw from.
        seed: Of the draws.
    """

    def __init__(self, space: Space, seed: int):
        self._space, self._seed = space, seed

    def ask(self, number: int) -> dict[str, Any]:
        """As `Sampler`."""
        return draw(self._space, number, self._seed)

    def tell(self, outcome: Outcome) -> None:
        """Learns nothing."""


class OptunaSampler:
    """Optuna's tree of Parzen estimators, which learns from all rows that are there when a trial starts.

    Its study is made anew from the rows: they alone are what a sweep that was killed goes on with.

    Args:
        space: To draw from.
        seed: Of the draws.
        direction: `"min"` or `"max"`.
        journal: Where several hosts share one study; None for one of this process.

    Raises:
        StudyError: When Optuna is not installed.
    """

    def __init__(self, space: Space, seed: int, direction: str, journal: Path | None = None):
        optuna = self._optuna = import_optuna("sampler", "take --sampler random")
        self._seed, self._is_shared = seed, journal is not None
        self._study = optuna.create_study(
            direction=f"{direction}imize",
            sampler=self._sampler(seed),
            storage=None if journal is None else journal_storage(journal),
            study_name="sweep",
            load_if_exists=journal is not None,
        )
        self._spaces = {name: self._distribution(each) for name, each in space.items()}
        self._asked: dict[int, Any] = {}

    def _sampler(self, seed: int) -> Any:
        # Trials under way count as bad ones: those side by side are not drawn alike.
        return self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)

    def _distribution(self, each: Any) -> Any:
        kinds = self._optuna.distributions
        if isinstance(each, Choice):
            return kinds.CategoricalDistribution(each.values)
        kind = kinds.IntDistribution if each.is_whole else kinds.FloatDistribution
        return kind(each.low, each.high, log=each.is_log)

    def ask(self, number: int) -> dict[str, Any]:
        """As `Sampler`."""
        if self._is_shared:
            # Another draw for each trial, on whichever host.
            self._study.sampler = self._sampler(random.Random(f"{self._seed}/{number}").getrandbits(32))
        self._asked[number] = self._study.ask(self._spaces)
        self._asked[number].set_user_attr(_NUMBER, number)
        return dict(self._asked[number].params)

    def tell(self, outcome: Outcome) -> None:
        """As `Sampler`; also of rows that were there before."""
        states = self._optuna.trial.TrialState
        state = states.COMPLETE if outcome.state in (ENDED, PRUNED) and outcome.value is not None else states.FAIL
        value = outcome.value if state == states.COMPLETE else None
        asked = self._asked.pop(outcome.number, None)
        if asked is not None:
            self._tell(asked, value, state)
        is_settled = self._is_shared and (self._settle(outcome, value, state) or not outcome.parameters)
        if asked is not None or is_settled:
            return
        made = self._optuna.trial.create_trial(
            params=dict(outcome.parameters),
            distributions=self._spaces,
            value=value,
            state=state,
            user_attrs={_NUMBER: outcome.number},
        )
        self._study.add_trial(made)

    def _settle(self, outcome: Outcome, value: float | None, state: Any) -> bool:
        """Tells what hosts that are gone have not; returns whether one of them had asked for the trial."""
        known = [each for each in self._study.get_trials() if each.user_attrs.get(_NUMBER) == outcome.number]
        ran = [each.number for each in known if each.params == dict(outcome.parameters)][-1:]
        for each in known:
            is_it = each.number in ran
            self._tell(each.number, value if is_it else None, state if is_it else self._optuna.trial.TrialState.FAIL)
        return bool(known)

    def _tell(self, trial: Any, value: float | None, state: Any) -> None:
        # Two hosts may tell the same.
        with contextlib.suppress(self._optuna.exceptions.UpdateFinishedTrialError):
            self._study.tell(trial, value, state=state, skip_if_finished=True)


def make_sampler(name: str, space: Space, *, seed: int, direction: str, journal: Path | None = None) -> Sampler:
    """Returns the sampler of a name; `journal` is that of several hosts."""
    return RandomSampler(space, seed) if name == "random" else OptunaSampler(space, seed, direction, journal)
