"""Which examples does BatchNormalization see?

Synchronised: all of the global batch, as on one replica. Local: each replica its own rows, which keeps the statistics
those of the reference batch when the global batch grows; the moving averages are then averaged over replicas in the
collective that reduces the gradients, so that every replica, `evaluate` and a saved file hold the same ones.
"""

from __future__ import annotations

import collections
import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.gather import slope_weight
from tfscale.exact.terms import is_recording
from tfscale.framework.layers import batch_moments, reduction_axes, replace_batch_moments
from tfscale.framework.models import flat_layers
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.owners import Fact, PreparedModel
from tfscale.replicas.share import current_share
from tfscale.scaling import ScaledKnob, scale_batch_norm_momentum

MODES = ("auto", "local", "synchronized")

Moments = Callable[[Any, Any], tuple[tf.Tensor, tf.Tensor]]


def choose_batch_norm(requested: str, *, per_replica_batch: float, reference_batch: float) -> str:
    """Chooses what BatchNormalization normalises over.

    Statistics should come from as many examples as in the run for which the recipe was tuned.

    Args:
        requested: `"auto"`, or the user's own choice: `"local"` or `"synchronized"`.
        per_replica_batch: Examples of one replica in one step.
        reference_batch: Examples of the batch that the recipe was tuned for.

    Returns:
        `"local"` or `"synchronized"`.

    Raises:
        ModelError: When `requested` is none of the three.

    Example:
        >>> choose_batch_norm("auto", per_replica_batch=64, reference_batch=64)
        'local'
        >>> choose_batch_norm("auto", per_replica_batch=16, reference_batch=64)
        'synchronized'
    """
    check_batch_norm(requested)
    if requested != "auto":
        return requested
    return "local" if per_replica_batch >= reference_batch else "synchronized"


def check_batch_norm(requested: Any) -> None:
    """Raises `ModelError` for what is no argument `batch_norm`."""
    if not isinstance(requested, str) or requested not in MODES:
        raise ModelError(
            f"`batch_norm` must be one of {', '.join(map(repr, MODES))}.\nReceived: batch_norm={requested!r}."
        )


def batch_norm_layers(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """Every BatchNormalization layer of `model`, at any depth."""
    return [layer for layer in flat_layers(model) if isinstance(layer, keras.layers.BatchNormalization)]


# What was chosen for a model.
BATCH_NORM = Fact[str](PreparedModel, "batch_norm")


def set_batch_norm(model: keras.Model, mode: str) -> None:
    """Makes the BatchNormalization layers of `model` local or synchronised. Idempotent.

    Args:
        model: Any Keras model; a layer made with `synchronized=True` stays synchronised in either mode.
        mode: `"local"` or `"synchronized"`.
    """
    BATCH_NORM.set(model, mode)
    for layer in batch_norm_layers(model):
        is_global = mode == "synchronized" or layer.synchronized
        replace_batch_moments(layer, _moments_of_step(layer, is_global=is_global))


# Of a layer, the momentum with which it was made, and the one it got.
MOMENTA = Fact[tuple[float, float]](PreparedModel, "momentum", lambda pair: f"{pair[1]:.6g} for {pair[0]:.6g}")


def scale_batch_norm(model: keras.Model, ratio: int | Fraction) -> None:
    """Lets the moving averages of `model` remember as many examples as with the reference batch. Idempotent.

    The configs of the layers keep the reference momentum: a clone, or a model loaded from a file, is as the one that
    was prepared, and is prepared anew.

    Args:
        model: Any Keras model.
        ratio: The batch ratio.
    """
    for layer in batch_norm_layers(model):
        reference = _reference_momentum(layer)
        new = scale_batch_norm_momentum(reference, ratio).new
        if new != layer.momentum:
            MOMENTA.set(layer, (reference, new))
            layer.momentum = new
            layer.get_config = functools.partial(_reference_config, weakref.ref(layer))


def batch_norm_knobs(model: keras.Model, ratio: int | Fraction) -> tuple[ScaledKnob, ...]:
    """Returns what `scale_batch_norm` made of `model`: one row for all layers with the same momentum."""
    counts = collections.Counter(_reference_momentum(layer) for layer in batch_norm_layers(model))
    rows = []
    for momentum, count in counts.items():
        knob = scale_batch_norm_momentum(momentum, ratio)
        name = f"{model.name}: momentum of {count} BatchNormalization"
        rows.append(ScaledKnob(name, knob.unit, knob.old, knob.new, knob.rule, knob.reason))
    return tuple(rows)


def _reference_momentum(layer: keras.layers.BatchNormalization) -> float:
    reference, new = MOMENTA.of(layer, (layer.momentum, layer.momentum))
    # The user may have set another one since.
    return reference if layer.momentum == new else layer.momentum


def _reference_config(reference: weakref.ref[keras.layers.BatchNormalization]) -> dict[str, Any]:
    layer: Any = reference()
    return {**type(layer).get_config(layer), "momentum": _reference_momentum(layer)}


def local_statistics(model: keras.Model, mode: str) -> list[keras.Variable]:
    """The moving averages that differ between replicas after a step, and are to be averaged."""
    if mode == "synchronized":
        return []
    return moving_statistics([layer for layer in batch_norm_layers(model) if not layer.synchronized])


def moving_statistics(layers: Iterable[keras.layers.BatchNormalization]) -> list[keras.Variable]:
    """The moving averages that a step changes."""
    return [variable for layer in layers if layer.trainable for variable in layer.non_trainable_variables]


def is_synchronized(model: keras.Model, mode: str) -> bool:
    """Whether replicas exchange statistics in the middle of a training step."""
    return any(mode == "synchronized" or layer.synchronized for layer in batch_norm_layers(model) if layer.trainable)


def synchronizes(model: keras.Model) -> bool:
    """As `is_synchronized`, as it was chosen for the model."""
    return is_synchronized(model, BATCH_NORM.of(model, "local"))


def _moments_of_step(layer: keras.layers.BatchNormalization, *, is_global: bool) -> Moments:
    def moments(inputs: tf.Tensor, mask: Any) -> tuple[tf.Tensor, tf.Tensor]:
        share = current_share()
        # What is local on purpose is none of the differences that a check looks for.
        if share is None or share.num_replicas == 1 or not (is_global or is_recording()):
            return batch_moments(layer)(inputs, mask)
        axes, is_counted = reduction_axes(layer), share.is_counted(inputs.dtype)
        if not share.weights_gradients:
            return global_moments(inputs, axes, mask, is_counted=is_counted)
        # Here the loss is not weighted by this replica's rows. So its slope is, before it goes to the others, and what
        # comes from them is divided by the weight that this replica's gradient gets in the end.
        weight = slope_weight(share, inputs.dtype)
        undone = _with_slope_times(inputs, tf.math.reciprocal_no_nan(weight))
        mean, variance = global_moments(undone, axes, mask, is_counted=is_counted)
        return _with_slope_times(mean, weight), _with_slope_times(variance, weight)

    return moments


@tf.custom_gradient
def _with_slope_times(value: tf.Tensor, factor: tf.Tensor) -> Any:
    """`value` itself, whose gradient is multiplied by `factor`."""
    return value, lambda slope: (slope * tf.cast(factor, slope.dtype), None)


def global_moments(
    inputs: tf.Tensor, axes: Sequence[int], mask: tf.Tensor | None = None, *, is_counted: tf.Tensor | float = 1.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance over the rows of all replicas, in one collective forward and one backward.

    With c_i, m_i, v_i the count, mean and (biased) variance of replica i:
    mean = sum(c_i m_i) / sum(c_i), variance = sum(c_i (v_i + m_i^2)) / sum(c_i) - mean^2. The sums are made in
    float64, so that the difference keeps float32's precision for means far larger than the deviation. With a mask the
    divisor is Keras's: the count and its epsilon.

    Args:
        inputs: Float tensor; replicas may hold different numbers of rows, or none.
        axes: Axes to average over.
        mask: Optional, one rank less than `inputs`; False entries are left out.
        is_counted: 1, or 0 for a replica whose rows are a stand-in.

    Returns:
        Mean and variance over `axes`, in the dtype and with the kept axes of `inputs`.
    """
    if mask is None:
        count = tf.cast(tf.reduce_prod(tf.gather(tf.shape(inputs), axes)), inputs.dtype)
        seen = inputs
    else:
        mask = tf.broadcast_to(tf.expand_dims(tf.cast(mask, tf.bool), -1), tf.shape(inputs))
        count = tf.reduce_sum(tf.cast(mask, inputs.dtype), axes)
        seen = tf.where(mask, inputs, tf.zeros_like(inputs))
    mean = tf.math.divide_no_nan(tf.reduce_sum(seen, axes), count)
    # The sum of squares has no slope in the mean, so its gradient need not pass through it.
    deviation = inputs - tf.reshape(tf.stop_gradient(mean), _kept_shape(inputs, axes))
    if mask is not None:
        deviation = tf.where(mask, deviation, tf.zeros_like(deviation))
    squares = tf.reduce_sum(tf.square(deviation), axes) * is_counted
    count, mean64 = tf.cast(count * is_counted, tf.float64), tf.cast(mean, tf.float64)
    second = tf.cast(squares, tf.float64) + count * tf.square(mean64)
    counts, firsts, seconds = all_reduce_sum([count + tf.zeros_like(mean64), count * mean64, second])
    # Keras divides by a little more where there is a mask: its mean is not quite that from which squares are least.
    divisor = counts if mask is None else counts + keras.config.epsilon()
    global_mean = tf.math.divide_no_nan(firsts, divisor)
    variance = tf.math.divide_no_nan(seconds - global_mean * (2 * firsts - counts * global_mean), divisor)
    return tf.cast(global_mean, inputs.dtype), tf.cast(tf.maximum(variance, 0), inputs.dtype)


def _kept_shape(inputs: tf.Tensor, axes: Sequence[int]) -> Any:
    shape = tf.shape(inputs)
    return [1 if axis in axes else shape[axis] for axis in range(inputs.shape.rank)]
