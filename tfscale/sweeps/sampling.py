"""Which settings does a trial get: drawn by chance, or by what Optuna has learnt?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from tfscale.errors import StudyError
from tfscale.sweeps.outcome import ENDED, PRUNED, Outcome
from tfscale.sweeps.space import Choice, Space, draw


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

    Raises:
        StudyError: When Optuna is not installed.
    """

    def __init__(self, space: Space, seed: int, direction: str):
        try:
            import optuna
        except ImportError as error:
            raise StudyError(
                "The sampler 'optuna' needs Optuna.\nReceived: it is not installed. `pip install optuna`, or take "
                "--sampler random."
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        # Trials under way count as bad ones: those side by side are not drawn alike.
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study = optuna.create_study(direction=f"{direction}imize", sampler=sampler)
        self._spaces = {name: self._distribution(each) for name, each in space.items()}
        self._asked: dict[int, Any] = {}

    def _distribution(self, each: Any) -> Any:
        kinds = self._optuna.distributions
        if isinstance(each, Choice):
            return kinds.CategoricalDistribution(each.values)
        kind = kinds.IntDistribution if each.is_whole else kinds.FloatDistribution
        return kind(each.low, each.high, log=each.is_log)

    def ask(self, number: int) -> dict[str, Any]:
        """As `Sampler`."""
        self._asked[number] = self._study.ask(self._spaces)
        return dict(self._asked[number].params)

    def tell(self, outcome: Outcome) -> None:
        """As `Sampler`; also of rows that were there before."""
        states = self._optuna.trial.TrialState
        state = states.COMPLETE if outcome.state in (ENDED, PRUNED) and outcome.value is not None else states.FAIL
        value = outcome.value if state == states.COMPLETE else None
        asked = self._asked.pop(outcome.number, None)
        if asked is not None:
            self._study.tell(asked, value, state=state)
            return
        made = self._optuna.trial.create_trial(
            params=dict(outcome.parameters), distributions=self._spaces, value=value, state=state
        )
        self._study.add_trial(made)


def make_sampler(name: str, space: Space, *, seed: int, direction: str) -> Sampler:
    """Returns the sampler of a name."""
    return RandomSampler(space, seed) if name == "random" else OptunaSampler(space, seed, direction)


def lock(directory: Path) -> Any:
    """Takes a directory for this process alone, until what is returned is closed.

    Raises:
        StudyError: When another process has it.
    """
    file = (directory / "lock").open("a")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return file
    except OSError as error:
        file.close()
        raise StudyError(
            f"A sweep is run by one process.\nReceived: {directory}, which another one has ({error}). "
            "Give each sweep a directory of its own."
        ) from error
    return file
