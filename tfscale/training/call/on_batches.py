"""What goes with `train_on_batch`, `test_on_batch` and `predict_on_batch`, which a loop of the user's own calls?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfscale.cluster.place import ON_BATCH
from tfscale.exact.plain_step import has_own_step
from tfscale.gradients.sending import Sending
from tfscale.replicas.failures import failing_together
from tfscale.replicas.one_at_a_time import one_at_a_time
from tfscale.replicas.uncaught import begin_loop
from tfscale.training.call.call_errors import freeing_when_python_ends, naming_errors
from tfscale.training.call.equal_weights import WeightsOfCalls
from tfscale.training.call.half_made import noting_half_made, refuse_half_made
from tfscale.training.call.labels_of_calls import LabelsOfCalls
from tfscale.training.call.met_optimizers import meet_optimizers


def guard_calls_on_batches(model: keras.Model, strategy: tf.distribute.Strategy, sending: Sending) -> None:
    """Has these methods of a model end with the errors that `fit` ends with.

    Args:
        model: To be prepared.
        strategy: Of the model.
        sending: How its gradients travel.
    """
    for name in ON_BATCH:
        setattr(model, name, _guarded(model, strategy, sending, name))


def _guarded(model: keras.Model, strategy: tf.distribute.Strategy, sending: Sending, name: str) -> Callable[..., Any]:
    method = getattr(type(model), name).__get__(model)
    labels, weights = LabelsOfCalls(strategy, name), WeightsOfCalls(name, model, strategy)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        refuse_half_made(model)
        with (
            one_at_a_time(strategy, name),
            noting_half_made(),
            failing_together(strategy, name),
            freeing_when_python_ends(),
            naming_errors(model, strategy, name, None),
        ):
            begin_loop(strategy)
            weights.compare()
            # `predict_on_batch` has none.
            labels.compare(kwargs.get("y", args[1] if len(args) > 1 else None))
            if not model.built and has_own_step(model, name):
                # It may make its weights by itself, and update them.
                meet_optimizers(model, strategy, sending)
            return method(*args, **kwargs)

    return call
