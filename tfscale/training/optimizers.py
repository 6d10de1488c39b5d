"""Where in an update are gradients reduced?

Once, before anything else looks at them. Keras reduces after clipping, decay and accumulation; here the reduced
gradients enter, and clipping, weight decay, loss scaling, EMA and the update then run on every replica alike.

With gradient accumulation nothing is sent on the micro-steps. Replica i of N adds N times its part of the gradient to
its own accumulators, and an update reduces their mean: so the accumulated gradient of the global batch is the *mean*
of the replicas' accumulators at any time, and to make the copies equal, as in a file, is to average them.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import CommunicationError
from tfscale.training import _tf_private
from tfscale.training.adascale import AdaScaleSGD, OwnMoments, own_moments
from tfscale.training.all_reduce import all_reduce_sum
from tfscale.training.compression.protocol import Compression
from tfscale.training.compression.reducer import GradientReducer, Traffic
from tfscale.training.share import Share, current_share

_REDUCED = threading.local()


@contextlib.contextmanager
def gradients_reduced() -> Iterator[None]:
    """Says that the gradients given to `optimizer.apply` in this thread are those of the global batch already."""
    outer = _are_reduced()
    _REDUCED.already = True
    try:
        yield
    finally:
        _REDUCED.already = outer


def _are_reduced() -> bool:
    return getattr(_REDUCED, "already", False) or tf.distribute.get_replica_context() is None


def reduce_gradients_once(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes `optimizer.apply` reduce gradients over replicas first, and only once. Idempotent.

    Args:
        optimizer: Any Keras optimizer, `LossScaleOptimizer` included. Its state and config stay as they are.
    """
    inner = innermost(optimizer)
    for updater in _updaters(inner):
        _reduce_before_update(updater)
    for variable in (*_tf_private.scalar_variables(optimizer), *_tf_private.scalar_variables(inner)):
        _tf_private.write_locally(variable)
    apply = type(optimizer).apply.__get__(optimizer)

    def apply_reduced(grads: Any, trainable_variables: Any = None) -> Any:
        grads = [_weighted(optimizer, gradient) for gradient in grads]
        if accumulates(optimizer) or _updaters(optimizer) == [optimizer]:
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


# How the gradients of an optimizer travel, unless as they are.
_REDUCERS: weakref.WeakKeyDictionary[keras.optimizers.Optimizer, GradientReducer] = weakref.WeakKeyDictionary()


def compress_gradients(
    optimizer: keras.optimizers.Optimizer, compression: Compression | None, strategy: tf.distribute.Strategy
) -> None:
    """Lets the gradients of `optimizer` travel compressed from the next trace on. Idempotent.

    Args:
        optimizer: Of a prepared model.
        compression: None to send them as they are.
        strategy: Under which the optimizer was made. One replica sends nothing, and compresses nothing.

    Raises:
        CommunicationError: When AdaScale would have to measure approximate gradients.
    """
    updater = innermost(optimizer)
    if compression is None or strategy.num_replicas_in_sync == 1:
        _REDUCERS.pop(updater, None)
        return
    if isinstance(updater, AdaScaleSGD) and compression.exactness == "approximate":
        raise CommunicationError(
            "AdaScale measures the noise in the gradients, and would take what a compression leaves out for noise.\n"
            f'Received: compression {compression.name}. Use "none", "bf16" or "fp16", or another rule.'
        )
    existing = _REDUCERS.get(updater)
    if existing is None or existing.compression is not compression or not existing.is_ready:
        _REDUCERS[updater] = GradientReducer(compression, strategy, _tf_private.trained_variables(updater))


def traffic_of(optimizer: keras.optimizers.Optimizer) -> Traffic | None:
    """What the compressed gradients of `optimizer` took in the step traced last; None without a compression."""
    reducer = _REDUCERS.get(innermost(optimizer))
    return None if reducer is None else reducer.traffic


def innermost(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The optimizer that updates the weights, inside any `LossScaleOptimizer`."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def held_optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """The compiled optimizer of a model, and those that a user's own class holds besides."""
    held = [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    return list({id(optimizer): optimizer for optimizer in held}.values())


def _updaters(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """The optimizers that update weights: those inside a `MultiOptimizer` (since Keras 3.15), or the one at hand."""
    return list(getattr(optimizer, "optimizers", ())) or [innermost(optimizer)]


def _reduce_before_update(updater: keras.optimizers.Optimizer) -> None:
    _tf_private.hook_gradients(updater, lambda gradients: _reduce_unless_reduced(updater, gradients))
    if accumulates(updater) and updater.use_ema:
        _tf_private.hook_averages(updater, lambda action: _on_update_step(updater, action))
    for variable in _tf_private.scalar_variables(updater):
        _tf_private.write_locally(variable)


def accumulates(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether updates happen only on every k-th step."""
    return bool(innermost(optimizer).gradient_accumulation_steps)


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
        return _sum(updater, gradients, others, scale)
    sums, (squares, replicas, *rest) = _sum(updater, gradients, [*own_moments(gradients, share), *others], scale)
    updater.observe(OwnMoments(squares, replicas), sums, share.global_examples, scale)
    return sums, rest


def _sum(
    updater: keras.optimizers.Optimizer, gradients: Sequence[Any], others: Sequence[Any], scale: Any
) -> tuple[list[Any], list[Any]]:
    """With a compression, all but the dense gradients stays exact."""
    reducer, count = _REDUCERS.get(updater), len(gradients)
    if reducer is None:
        reduced = all_reduce_sum([*gradients, *others])
        return reduced[:count], reduced[count:]
    is_dense = [tf.is_tensor(gradient) and not isinstance(gradient, tf.IndexedSlices) for gradient in gradients]
    whole = [None if dense else gradient for gradient, dense in zip(gradients, is_dense, strict=True)]
    dense_ones = [each for each, dense in zip(gradients, is_dense, strict=True) if dense]
    sums_of_dense, reduced = reducer.reduce(dense_ones, [*whole, *others], scale)
    compressed = iter(sums_of_dense)
    sums = [next(compressed) if dense else each for each, dense in zip(reduced[:count], is_dense, strict=True)]
    return sums, reduced[count:]


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
