"""What does one replica do in one step?

The forward and backward pass on its own rows, one reduction, and the same update as every other replica.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.training import _tf_private, checksums, metrics, optimizers
from tfscale.training.all_reduce import all_reduce_sum
from tfscale.training.batch_norm import local_statistics
from tfscale.training.inputs import ReplicaBatch
from tfscale.training.losses import global_loss_attributes
from tfscale.training.progress import counting_reductions
from tfscale.training.share import Share, agree_on_share, in_share, make_share
from tfscale.training.xla import run_compiled

Logs = dict[str, Any]


def train_step(model: keras.Model, batch: ReplicaBatch, batch_norm: str) -> list[tf.Tensor]:
    """One update of `model` from this replica's rows; to be called in a replica context.

    Args:
        model: A prepared model with Keras's own `train_step`.
        batch: This replica's rows.
        batch_norm: `"local"` or `"synchronized"`.

    Returns:
        The metric states summed over all replicas; `metrics.metric_results` makes logs of them.
    """
    with counting_reductions(model):
        return _default_train_step(model, batch, _share_of(batch), local_statistics(model, batch_norm))


def test_step(model: keras.Model, batch: ReplicaBatch) -> list[tf.Tensor]:
    """Updates the metrics of `model` from this replica's rows; as `train_step` without the update."""
    share = _share_of(batch)
    with in_share(share):
        run_compiled(model, lambda: _forward(model, batch.data, share, training=False))
    return _reduce_states(model, share, [])


def own_train_step(model: keras.Model, batch: ReplicaBatch, batch_norm: str) -> Logs:
    """As `train_step` for a class that defines its own: runs that, and returns its logs for the global batch.

    Gradients are weighted and reduced where the user's step hands them to an optimizer.
    """
    with counting_reductions(model):
        share = _share_of(batch)
        slots = checksums.sent_along(model)
        with in_share(share._replace(weights_gradients=True)), _as_on_one_replica(model, share):
            logs = model.train_step(batch.data)
        return _global_logs(model, logs, share, local_statistics(model, batch_norm), slots)


def own_test_step(model: keras.Model, batch: ReplicaBatch) -> Logs:
    """As `test_step` for a class that defines its own."""
    share = _share_of(batch)
    with in_share(share), _as_on_one_replica(model, share):
        logs = model.test_step(batch.data)
    return _global_logs(model, logs, share, [])


def has_own_step(model: keras.Model, name: str) -> bool:
    """Whether the user's class defines `name` itself, so that tfscale runs theirs."""
    return getattr(type(model), name) is not getattr(keras.Model, name)


def _share_of(batch: ReplicaBatch) -> Share:
    if batch.global_examples is None or batch.first_row is None:
        return agree_on_share(batch.num_examples)
    return make_share(batch.num_examples, batch.global_examples, batch.first_row)


def _default_train_step(
    model: keras.Model, batch: ReplicaBatch, share: Share, statistics: Sequence[keras.Variable]
) -> list[tf.Tensor]:
    """Keras's own `train_step`, with one reduction that carries gradients, metric states and batch statistics."""
    optimizer = model.optimizer
    variables = model.trainable_weights
    # Before the forward pass, in which local BatchNormalization lets the copies differ until the reduction.
    slots = checksums.sent_along(model)

    def forward_and_backward() -> list[Any]:
        with tf.GradientTape() as tape:
            loss = _forward(model, batch.data, share, training=True)
            scaled = optimizer.scale_loss(loss * tf.cast(optimizers.gradient_weight(optimizer, share), loss.dtype))
        return tape.gradient(scaled, variables)

    with in_share(share):
        gradients = run_compiled(model, forward_and_backward)
        if optimizers.accumulates(optimizer):
            optimizer.apply(gradients, variables)
            return _reduce_states(model, share, statistics, slots)
        states = metrics.local_metric_states(model)
        shared = [_weighted(variable, share) for variable in statistics]
        reduced, others = optimizers.reduce_together(
            optimizer, gradients, [*states, *slots, *shared], scale=optimizer.scale_loss(1.0)
        )
        with optimizers.gradients_reduced():
            optimizer.apply(reduced, variables)
        checksums.received(model, others[len(states) : len(states) + len(slots)])
        _assign(statistics, others[len(states) + len(slots) :])
        return others[: len(states)]


def _forward(model: keras.Model, data: Any, share: Share, *, training: bool) -> tf.Tensor:
    """The loss of this replica's rows by the convention of `share.py`; metrics are updated on the way."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    with metrics.unchanged_by_stand_in(model, share):
        return _forward_on_rows(model, x, y, sample_weight, share, training=training)


def _forward_on_rows(
    model: keras.Model, x: Any, y: Any, sample_weight: Any, share: Share, *, training: bool
) -> tf.Tensor:
    y_pred = _tf_private.call_model(model, x, training=training)
    loss = _tf_private.compute_loss(model, x, y, y_pred, sample_weight, training=training)
    _tf_private.loss_tracker(model).update_state(_mean_entry(loss, share), sample_weight=share.num_examples)
    model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
    return loss


def _mean_entry(loss: tf.Tensor, share: Share) -> tf.Tensor:
    """What Keras logs of a loss: the scalar itself, or the mean of a vector (loss reduction None)."""
    if loss.shape.rank == 0:
        return loss
    own = loss * tf.cast(share.weight, loss.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(own), tf.cast(tf.size(own), own.dtype))


def _reduce_states(
    model: keras.Model, share: Share, statistics: Sequence[keras.Variable], slots: Sequence[tf.Tensor] = ()
) -> list[tf.Tensor]:
    """Metric states and batch statistics alone: what evaluation, and a user's own `train_step`, still have to send."""
    states = metrics.local_metric_states(model)
    reduced = all_reduce_sum([*states, *slots, *(_weighted(variable, share) for variable in statistics)])
    checksums.received(model, reduced[len(states) : len(states) + len(slots)])
    _assign(statistics, reduced[len(states) + len(slots) :])
    return reduced[: len(states)]


def _weighted(variable: keras.Variable, share: Share) -> tf.Tensor:
    value = tf.convert_to_tensor(variable.value)
    return value * tf.cast(share.weight, value.dtype)


def _assign(variables: Sequence[keras.Variable], values: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


@contextlib.contextmanager
def _as_on_one_replica(model: keras.Model, share: Share) -> Iterator[None]:
    """Lets a user's own step compute losses and metrics as its author meant them."""
    with global_loss_attributes(model), metrics.unchanged_by_stand_in(model, share):
        yield


def _global_logs(
    model: keras.Model,
    logs: Any,
    share: Share,
    statistics: Sequence[keras.Variable],
    slots: Sequence[tf.Tensor] = (),
) -> Logs:
    """Metrics from their states over all replicas, anything else averaged over all examples."""
    states = _reduce_states(model, share, statistics, slots)
    with metrics.using_states(model, states):
        results = {metric.name: metric.result() for metric in model.metrics} | model.get_metrics_result()
    logs = dict(logs)
    others = {name: value for name, value in logs.items() if name not in results}
    flat = [tf.cast(value, tf.float32) for value in tf.nest.flatten(others)]
    averaged = all_reduce_sum([tf.math.multiply_no_nan(value, share.weight) for value in flat])
    return logs | {name: results[name] for name in logs if name in results} | tf.nest.pack_sequence_as(others, averaged)
