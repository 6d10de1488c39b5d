"""Is an `add_loss` term a sum or a mean over the examples?

Keras takes whatever scalar a layer adds. Activity regularizers are sums over the batch (twice the rows, twice the
loss); most users add means. On N replicas the two need different weights, so each term is tried once, when the model
is prepared for its first step: on a few rows, and on the same rows twice over.
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
        if share is None or share.num_replicas == 1:
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
    rows = keras.tree.map_structure(_rows_like, input_spec)
    once = _added_losses(model, rows)
    if not once:
        return []
    twice = _added_losses(model, keras.tree.map_structure(lambda leaf: np.concatenate([leaf, leaf]), rows))
    kinds = []
    for index, (single, double) in enumerate(zip(once, twice, strict=True)):
        doubles = bool(np.isclose(double, 2 * single, rtol=1e-3)) and not np.isclose(single, 0)
        if not doubles and not np.isclose(double, single, rtol=1e-3):
            _log.warning(
                "add_loss term %d of model %r is neither a sum nor a mean over examples (%.6g on %d rows, %.6g on the "
                "same rows twice): it is weighted as a mean, and may differ from one replica",
                index,
                model.name,
                single,
                _PROBE_ROWS,
                double,
            )
        kinds.append(doubles)
    return kinds


def _rows_like(spec: Any) -> np.ndarray:
    """A few rows that fit `spec`: fixed noise for numbers, zeros where any other value might be out of range."""
    shape = (_PROBE_ROWS, *(8 if size is None else size for size in spec.shape[1:]))
    dtype = tf.as_dtype(spec.dtype)
    if not dtype.is_floating:
        return np.zeros(shape, dtype.as_numpy_dtype)
    return np.random.default_rng(0).normal(size=shape).astype(dtype.as_numpy_dtype)


def _added_losses(model: keras.Model, rows: Any) -> list[float]:
    """The terms after one forward pass that leaves every variable as it was. Dropout is off."""
    values = [(variable, variable.value) for variable in model.variables]
    with keras.StatelessScope(state_mapping=values):
        model(rows, training=False)
        added = model.losses[: _tf_private.count_added_losses(model)]
        return [float(tf.reduce_sum(loss)) for loss in added]
