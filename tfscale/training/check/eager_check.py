"""Is a step that runs eagerly that of one replica, if it draws random numbers?

What it draws cannot be held still there. In a graph it can: the step is traced for that alone.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact.terms import Terms
from tfscale.replicas.agreement import any_of_workers
from tfscale.training.check.check_rows import Amount
from tfscale.training.check.first_step import Steps
from tfscale.training.check.step_check import StepCheck
from tfscale.training.step.due import is_due

_log = logging.getLogger(__name__)


class EagerStepCheck(StepCheck):
    """Looks at a step as it is run, and as a graph where it was found to draw random numbers.

    Args:
        model: As for `StepCheck`, and so are the others.
        strategy: Its strategy.
        terms: What is known of the terms of this kind of step.
        steps: The step, in both forms.
        mode: One of `vouching.MODES`.
        what: The step in words.
    """

    def __init__(
        self, model: keras.Model, strategy: tf.distribute.Strategy, terms: Terms, steps: Steps, mode: str, what: str
    ):
        super().__init__(model, strategy, terms, steps, mode, what)
        as_graph = dataclasses.replace(steps, as_graph=True)
        self._make_graph = functools.partial(_GraphOfStep, model, strategy, terms, as_graph, mode, what)
        self._calls = 0

    def __call__(self, batch: Any) -> None:
        """As of `StepCheck`."""
        super().__call__(batch)
        self._look_at_graph(batch)

    def again(self, batch: Any, *, is_next: bool) -> bool:
        """As of `StepCheck`."""
        is_anew = super().again(batch, is_next=is_next)
        self._look_at_graph(batch)
        return is_anew

    @functools.cached_property
    def _graph(self) -> _GraphOfStep:
        """For a step that draws alone."""
        return self._make_graph()

    def _look_at_graph(self, batch: Any) -> None:
        if not self._chance.is_drawn:
            return
        self._calls += 1
        if is_due(self._calls) and self._graph.is_traced(batch):
            if self._calls == 1:
                self._graph(batch)
            else:
                # It is too late to sum gradients elsewhere.
                self._graph.again(batch, is_next=False)


class _GraphOfStep(StepCheck):
    """Looks at the step as it is traced each time: Python may have decided otherwise since."""

    _is_said = False

    def is_traced(self, batch: Any) -> bool:
        """Whether the step has a graph for the rows of a batch, as it is now; says so where it has none.

        Args:
            batch: As for a look.
        """
        self._runs.forget()
        why = ""
        try:
            rows = self._rows_of(batch, Amount.MOST)
            self._runs.trace_alone(rows.whole)
            self._runs.trace_divided(rows.parts)
        # Code that reads numbers in Python has no graph, and may raise anything there.
        except Exception as error:
            why = f" ({type(error).__name__}: {error})".splitlines()[0]
        # Where functions are run eagerly, too, so is that of a graph.
        has_none = bool(why) or tf.config.functions_run_eagerly()
        if not any_of_workers(self._strategy, has_none):
            return True
        if not self._is_said:
            self._is_said = True
            _log.warning(
                "the %s could not be checked: it draws random numbers, runs eagerly, and has no graph in which they "
                "could be held still%s. Without run_eagerly it is",
                self._what,
                why,
            )
        return False
