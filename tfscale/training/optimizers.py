"""Where in an update are gradients reduced?

Once, before anything else looks at them. Keras reduces after clipping, decay and accumulation; here the reduced
gradients enter, and clipping, weight decay, loss scaling, EMA and the update then run on every replica alike.

With gradient accumulation nothing is sent on the micro-steps. Replica i of N adds N times its part of the gradient to
its own accumulators, and an update reduces their mean: so the accumulated gradient of the global batch is the *mean*
of the replicas' accumulators at any time, and to make the copies equal, as in a file, is to average them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.training import _tf_private
from tfscale.training.adascale import AdaScaleSGD, OwnMoments, own_moments
from tfscale.training.all_reduce import all_reduce_sum
from tfscale.training.double_buffer import buffer_of, take_turns, takes_turns
from tfscale.training.sending import sum_over_replicas
from tfscale.training.share import Share, current_share
from tfscale.training.thread_flag import ThreadFlag
from tfscale.training.updaters import accumulates, innermost, updaters_of

_REDUCED = ThreadFlag()


def gradients_reduced() -> contextlib.AbstractContextManager[None]:
    """Says that the gradients given to `optimizer.apply` in this thread are those of the global batch already."""
    return _REDUCED.raised()


def _are_reduced() -> bool:
    return _REDUCED.is_raised or tf.distribute.get_replica_context() is None


def reduce_gradients_once(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes `optimizer.apply` reduce gradients over replicas first, and only once. Idempotent.

    Args:
        optimizer: Any Keras optimizer, `LossScaleOptimizer` included. Its state and config stay as they are.
    """
    inner = innermost(optimizer)
    for updater in updaters_of(inner):
        _reduce_before_update(updater)
    for variable in (*_tf_private.scalar_variables(optimizer), *_tf_private.scalar_variables(inner)):
        _tf_private.write_locally(variable)
    apply = type(optimizer).apply.__get__(optimizer)

    def apply_reduced(grads: Any, trainable_variables: Any = None) -> Any:
        grads = [_weighted(optimizer, gradient) for gradient in grads]
        if takes_turns(optimizer) and not _are_reduced():
            take_turns(optimizer, grads, trainable_variables, functools.partial(_apply_sums, apply))
            return None
        if accumulates(optimizer) or updaters_of(optimizer) == [optimizer]:
            return apply(grads, trainable_variables)
        # One reduction for several inner optimizers. And loss scaling looks for infinities first: it must skip a step
        # on all replicas or on none.
        grads = _reduce_unless_reduced(optimizer, grads)
        with gradients_reduced():
            return apply(grads, trainable_variables)

    optimizer.apply = apply_reduced
    if optimizer is not inner and accumulates(optimizer):
        # Here the gradients stay local until the update: the replicas agree on one number instead.
        check_finite = type(optimizer).check_finite.__get__(optimizer)
        optimizer.check_finite = lambda grads: _all_agree(check_finite(grads))


def _apply_sums(apply: Callable[..., Any], sums: Sequence[Any], variables: Sequence[keras.Variable]) -> None:
    with gradients_reduced():
        apply(sums, variables)


def flush_waiting(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes the update whose gradients wait for the next step, if there are any. Outside of a step, by every worker."""
    buffer = buffer_of(optimizer)
    if buffer is not None:
        buffer.flush(optimizer, lambda own, sums, variables: _apply_sums(own.apply, sums, variables))


def _reduce_before_update(updater: keras.optimizers.Optimizer) -> None:
    _tf_private.hook_gradients(updater, lambda gradients: _reduce_unless_reduced(updater, gradients))
    if accumulates(updater) and updater.use_ema:
        _tf_private.hook_averages(updater, lambda action: _on_update_step(updater, action))
    for variable in _tf_private.scalar_variables(updater):
        _tf_private.write_locally(variable)


def gradient_weight(optimizer: keras.optimizers.Optimizer, share: Share) -> Any:
    """By what a replica multiplies the loss of its own rows, or the gradient of it."""
    return share.weight * share.num_replicas if accumulates(optimizer) else share.weight


def _weighted(optimizer: keras.optimizers.Optimizer, gradient: Any) -> Any:
    """A custom `train_step` gives the gradient of its replica's own mean: it is weighted here."""
    share = current_share()
    if share is None or share.num_replicas == 1 or not share.weights_gradients or gradient is None:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        values = _weighted(optimizer, gradient.values)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    weight = gradient_weight(optimizer, share)
    return tf.math.multiply_no_nan(gradient, tf.cast(weight, gradient.dtype))


def reduce_together(
    optimizer: keras.optimizers.Optimizer, gradients: Sequence[Any], others: Sequence[Any], *, scale: Any
) -> tuple[list[Any], list[Any]]:
    """Sums gradients and whatever else over all replicas in one collective; what AdaScale measures travels along.

    Args:
        optimizer: The one that will apply the gradients.
        gradients: Those of this replica, weighted by its share.
        others: Tensors to be summed too.
        scale: What the gradients are multiplied by, against underflow.

    Returns:
        The sums of the gradients, and of the others.
    """
    updater, share = innermost(optimizer), current_share()
    if share is None or share.num_replicas == 1 or not (isinstance(updater, AdaScaleSGD) and updater.built):
        return sum_over_replicas(updater, gradients, others, scale)
    sums, (squares, replicas, *rest) = sum_over_replicas(
        updater, gradients, [*own_moments(gradients, share), *others], scale
    )
    updater.observe(OwnMoments(squares, replicas), sums, share.global_examples, scale)
    return sums, rest


def _reduce_unless_reduced(optimizer: keras.optimizers.Optimizer, gradients: list[Any]) -> list[Any]:
    if _are_reduced():
        return gradients
    # In a `LossScaleOptimizer` the gradients are still scaled; its inner one, and any other, has unscaled them.
    is_scaled = optimizer is not innermost(optimizer)
    reduced, _ = reduce_together(optimizer, gradients, [], scale=optimizer.scale_loss(1.0) if is_scaled else 1.0)
    if not accumulates(optimizer):
        return reduced
    num_replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    return [gradient if gradient is None else gradient / num_replicas for gradient in reduced]


def _on_update_step(optimizer: keras.optimizers.Optimizer, action: Callable[[], None]) -> None:
    """Runs `action` in the last micro-step of an update, or at once outside of a step, as at the end of `fit`."""
    if tf.executing_eagerly() and current_share() is None:
        action()
        return

    def run() -> tf.Tensor:
        action()
        return tf.constant(0)

    steps = optimizer.gradient_accumulation_steps
    is_update = tf.equal((tf.convert_to_tensor(_tf_private.micro_step_counter(optimizer).value) + 1) % steps, 0)
    tf.cond(is_update, run, lambda: tf.constant(0))


def _all_agree(finite: tf.Tensor) -> tf.Tensor:
    if tf.distribute.get_replica_context() is None:
        return finite
    (failures,) = all_reduce_sum([tf.cast(tf.logical_not(finite), tf.float32)])
    return tf.equal(failures, 0)


def average_accumulators(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes the copies of the accumulated gradients equal, so that a file holds those of the global batch.

    To be called by every replica. Costs one reduction of the size of the gradients.
    """
    accumulators = _tf_private.gradient_accumulators(innermost(optimizer))
    num_replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    totals = all_reduce_sum([tf.convert_to_tensor(variable.value) for variable in accumulators])
    for variable, total in zip(accumulators, totals, strict=True):
        variable.assign(total / num_replicas)
