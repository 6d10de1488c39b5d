"""How is everything made that a step needs, before it is traced?

Keras builds its own steps from shapes alone. A step of the user's own, and data or a model that Keras cannot call with
stand-ins, are rehearsed: so everything is made as on one device, where the first step makes it.
"""

from __future__ import annotations

import logging
from typing import Any

import keras
import tensorflow as tf

from tfscale.training import _tf_private
from tfscale.training.metrics import computes_of_results, meet_updates, metrics_of, remembering_results
from tfscale.training.plain_step import has_own_step
from tfscale.training.rehearsal import rehearse
from tfscale.training.terms import Terms

_log = logging.getLogger(__name__)


def build_for(model: keras.Model, strategy: tf.distribute.Strategy, name: str, spec: Any, terms: Terms) -> None:
    """Makes whatever the model, its losses, metrics and optimizers lack for one of its steps, on all replicas.

    Args:
        model: Prepared.
        strategy: Its strategy.
        name: Of the step, such as `"train_step"`.
        spec: Structure of specs of a batch; None where no data have come yet.
        terms: What is known of the step; what the rehearsal shows of its logs is written there.
    """
    if spec is None:
        return
    if not has_own_step(model, name):
        try:
            with strategy.scope():
                _tf_private.build_from_spec(model, spec)
            return
        except Exception as error:  # Keras calls the model with stand-ins for data, which not every model takes.
            _log.debug("model %r is not built from shapes alone: %s", model.name, error)

    def step(data: Any) -> None:
        meet_updates(metrics_of(model))
        with remembering_results() as given:
            logs = getattr(model, name)(data)
        if name != "predict_step":
            terms.tells_whole_results = computes_of_results(logs, given)

    try:
        rehearse(strategy, step, spec)
    except Exception as error:  # What is wrong with the user's step will show where it is run.
        _log.debug("the %s of model %r could not be rehearsed: %s", name, model.name, error)
