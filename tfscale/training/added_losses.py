"""Is an `add_loss` term a sum or a mean over the examples?

Keras takes whatever scalar a layer adds: most are means, as activity regularizers are since Keras 3.15, but some are
sums (twice the rows, twice the loss). On N replicas the two need different weights, so each term is tried once, when
the model is prepared for its first step: on a few rows, and on the same rows twice over.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.training import _tf_private
from tfscale.training.share import current_share

_log = logging.getLogger(__name__)
_PROBE_ROWS = 2
_PROBE_LENGTH = 8
_RTOL = 1e-3


def make_added_losses_global(model: keras.Model, input_spec: Any) -> None:
    """Makes the entries of `model.losses` obey the convention of `share.py` inside a replica's step.

    Args:
        model: A built model.
        input_spec: Structure of `tf.TensorSpec` of `x`.
    """
    is_sum = _classify(model, input_spec)
    position = threading.local()

    def aggregate(loss: tf.Tensor) -> tf.Tensor:
        """Called once per entry of `model.losses`, in order, as often as the total loss is computed."""
        total = tf.reduce_sum(loss if loss.dtype.is_floating else tf.cast(loss, keras.config.floatx()))
        share = current_share()
        if share is None or share.is_whole:
            return total
        index = getattr(position, "next", 0)
        num_terms = max(len(model.losses), 1)
        position.next = (index + 1) % num_terms
        if index < len(is_sum) and is_sum[index]:
            return tf.math.divide_no_nan(total, tf.cast(share.weight, total.dtype))
        return total

    _tf_private.replace_added_loss_rule(model, aggregate)


def _classify(model: keras.Model, input_spec: Any) -> list[bool]:
    """For each term that `add_loss` made: whether it doubles with the number of rows."""
    if not any(_may_add_losses(layer) for layer in _tf_private.flat_layers(model)):
        return []
    rows = keras.tree.map_structure(_rows_like, input_spec)
    try:
        once = _added_losses(model, rows)
        twice = once and _added_losses(model, keras.tree.map_structure(lambda leaf: tf.concat([leaf, leaf], 0), rows))
    except Exception as error:  # Whatever a layer of the user raises on rows of ours.
        _log.warning(
            "the add_loss terms of model %r could not be tried (%s): they are weighted as means over examples",
            model.name,
            error,
        )
        return []
    return [_is_sum(model, index, *values) for index, values in enumerate(zip(once, twice, strict=True))]


def _may_add_losses(layer: keras.layers.Layer) -> bool:
    """Keras's own layers add losses only for an activity regularizer."""
    return layer.activity_regularizer is not None or not type(layer).__module__.startswith("keras.")


def _is_sum(model: keras.Model, index: int, once: float, twice: float) -> bool:
    if np.isclose(twice, once, rtol=_RTOL):
        return False
    if np.isclose(twice, 2 * once, rtol=_RTOL):
        return True
    _log.warning(
        "add_loss term %d of model %r is neither a sum nor a mean over examples (%.6g on %d rows, %.6g on the same "
        "rows twice): it is weighted as a mean, and the result may differ from one replica's",
        index,
        model.name,
        once,
        _PROBE_ROWS,
        twice,
    )
    return False


def _rows_like(spec: Any) -> tf.Tensor:
    """A few rows that fit `spec`: fixed noise for numbers, zeros where any other value might be out of range."""
    shape = (_PROBE_ROWS, *(_PROBE_LENGTH if size is None else size for size in spec.shape[1:]))
    dtype = tf.as_dtype(spec.dtype)
    if not dtype.is_floating:
        return tf.zeros(shape, dtype)
    return tf.constant(np.random.default_rng(0).normal(size=shape), dtype)


def _added_losses(model: keras.Model, rows: Any) -> list[float]:
    """The terms after one forward pass that leaves every variable as it was. Dropout is off."""
    values = [(variable, variable.value) for variable in model.variables]
    with keras.StatelessScope(collect_losses=True, state_mapping=values):
        _tf_private.call_model(model, rows, training=False)
        added = model.losses[: _tf_private.count_added_losses(model)]
        return [float(tf.reduce_sum(loss)) for loss in added]
