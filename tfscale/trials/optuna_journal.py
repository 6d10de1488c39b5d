"""How are the trials of a study shown in Optuna?

As trials of one Optuna study, in a journal file in the directory: `optuna-dashboard journal.log` shows them while they
come in. The study asks nothing back: all batches get the same points, which a sampler that learns would not give them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfscale.study.result import TrialResult
from tfscale.trials.with_optuna import import_optuna, journal_storage

_NAME = "name"
# Wider than any range that is searched: Optuna asks for one.
_LEAST, _MOST = 1e-12, 1e12


class OptunaJournal:
    """Adds results to a journal, each once.

    Args:
        path: Of the journal, which several hosts may add to.
        title: Of the study in it.

    Raises:
        StudyError: When Optuna is not installed.
    """

    def __init__(self, path: Path, title: str):
        self._optuna = import_optuna("engine", "leave out --engine")
        storage = journal_storage(path)
        self._study = self._optuna.create_study(
            direction="minimize", storage=storage, study_name=f"steps to {title}", load_if_exists=True
        )

    def add(self, results: Iterable[TrialResult]) -> None:
        """Adds what is not there yet.

        Args:
            results: Of trials that have ended.
        """
        known = {each.user_attrs.get(_NAME) for each in self._study.get_trials(deepcopy=False)}
        for result in results:
            name = f"{result.trial.name} of {result.seconds:.6g} s"
            if name not in known:
                self._study.add_trial(self._trial(result, name))

    def _trial(self, result: TrialResult, name: str) -> Any:
        kinds, states = self._optuna.distributions, self._optuna.trial.TrialState
        is_reached = math.isfinite(result.steps)
        values = {"batch": float(result.trial.batch), **result.trial.parameters}
        return self._optuna.trial.create_trial(
            params={key: float(value) for key, value in values.items()},
            distributions={key: _range(kinds, float(value)) for key, value in values.items()},
            value=result.steps if is_reached else None,
            state=states.COMPLETE if is_reached else states.FAIL,
            user_attrs={
                _NAME: name,
                "point": result.trial.point,
                "seed": result.trial.seed,
                "reason": result.reason,
                "device": result.device,
            },
            intermediate_values={step: value for step, value in result.evaluations if math.isfinite(value)},
        )


def _range(kinds: Any, value: float) -> Any:
    is_positive = _LEAST <= value <= _MOST
    return kinds.FloatDistribution(_LEAST, _MOST, log=True) if is_positive else kinds.FloatDistribution(-_MOST, _MOST)
