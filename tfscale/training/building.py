"""How is everything made that a step needs, before it is traced?

Keras builds its own steps from shapes alone. A step of the user's own, and data or a model that Keras cannot call with
stand-ins, are rehearsed: so everything is made as on one device, where the first step makes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfscale.training import _tf_private
from tfscale.training.check_rows import CheckRows
from tfscale.training.functions import Look
from tfscale.training.metrics import computes_of_results, meet_updates, metrics_of, remembering_results
from tfscale.training.own_numbers import OwnNumbers
from tfscale.training.plain_step import has_own_step
from tfscale.training.rehearsal import rehearse, rehearse_eagerly
from tfscale.training.terms import Terms

_log = logging.getLogger(__name__)


def build_for(model: keras.Model, strategy: tf.distribute.Strategy, name: str, spec: Any, terms: Terms) -> bool:
    """Makes whatever the model, its losses, metrics and optimizers lack for one of its steps, on all replicas.

    Args:
        model: Prepared.
        strategy: Its strategy.
        name: Of the step, such as `"train_step"`.
        spec: Structure of specs of a batch; None where no data have come yet.
        terms: What is known of the step; what the rehearsal shows of its logs is written there.

    Returns:
        Whether it could be done from shapes.
    """
    if spec is None:
        return True
    if not has_own_step(model, name):
        try:
            with strategy.scope():
                _tf_private.build_from_spec(model, spec)
            return True
        except Exception as error:  # Keras calls the model with stand-ins for data, which not every model takes.
            _log.debug("model %r is not built from shapes alone: %s", model.name, error)
    try:
        rehearse(strategy, _step_of(model, name, terms), spec)
    except Exception as error:  # What is wrong with the user's step will show where it is run.
        _log.debug("the %s of model %r could not be rehearsed: %s", name, model.name, error)
        return False
    return True


class RowsRehearsal:
    """Makes what an eager step lacks that shapes do not make, with rows of the first batch.

    Args:
        model: Prepared, run eagerly.
        strategy: Its strategy.
        name: Of the step.
        terms: As for `build_for`.
        then: To be called when it is made; returns what looks at that batch and at later ones.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        name: str,
        terms: Terms,
        then: Callable[[], Look | None],
    ):
        self._strategy = strategy
        self._step = _step_of(model, name, terms)
        self._what = f"{name} of model {model.name!r}"
        self._then = then
        self._look: Look | None = None

    def __call__(self, batch: Any) -> None:
        """Makes it, and looks at the first batch."""
        try:
            rehearse_eagerly(self._strategy, self._step, CheckRows.of(batch, self._strategy).whole)
        except Exception as error:  # As above.
            _log.debug("the %s could not be rehearsed: %s", self._what, error)
        self._look = self._then()
        if self._look is not None:
            self._look(batch)

    def again(self, batch: Any, *, is_next: bool) -> bool:
        """Looks at a later one."""
        return self._look is not None and self._look.again(batch, is_next=is_next)


def _step_of(model: keras.Model, name: str, terms: Terms) -> Callable[[Any], None]:
    def step(data: Any) -> None:
        meet_updates(metrics_of(model))
        with remembering_results() as given, OwnNumbers(model).unchanged():
            logs = getattr(model, name)(data)
        if name != "predict_step":
            terms.tells_whole_results = computes_of_results(logs, given)

    return step
