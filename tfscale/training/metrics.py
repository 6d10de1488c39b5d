"""What do the logs of a step say, when each replica has counted only its own rows?

Keras keeps one copy of a metric's state per replica, to be added up when it is read. The copies are added in the
collective that reduces the gradients, and the results are computed from the sums.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.training.share import Share


def local_metric_states(model: keras.Model) -> list[tf.Tensor]:
    """This replica's metric states, in the order of `model.metrics_variables`."""
    return [tf.convert_to_tensor(variable.value) for variable in model.metrics_variables]


@contextlib.contextmanager
def unchanged_by_stand_in(model: keras.Model, share: Share) -> Iterator[None]:
    """Takes back what the metrics counted meanwhile, if this replica's only row is a stand-in."""
    if share.num_replicas == 1 or tf.get_static_value(share.num_examples):
        yield
        return
    before = local_metric_states(model)
    yield

    def restore() -> tf.Tensor:
        for variable, state in zip(model.metrics_variables, before, strict=True):
            variable.assign(state)
        return tf.constant(0)

    tf.cond(share.num_examples > 0, lambda: tf.constant(0), restore)


@contextlib.contextmanager
def using_states(model: keras.Model, states: Sequence[tf.Tensor]) -> Iterator[None]:
    """Makes the metrics of `model` compute their results from `states`; their variables are not read."""
    with keras.StatelessScope(state_mapping=list(zip(model.metrics_variables, states, strict=True))):
        yield


def metric_results(model: keras.Model, states: Sequence[tf.Tensor]) -> dict[str, Any]:
    """The results of all metrics of `model`, by the names that Keras logs them under."""
    with using_states(model, states):
        return dict(model.get_metrics_result())
