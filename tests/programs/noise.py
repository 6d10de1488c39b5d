"""Random numbers that are the same for every row, so that a program that draws them can be compared.

tfscale lets replica 0 draw what one device would draw, and the others draw streams of their own: with VAEs, GANs and
diffusion models one device and three agree in distribution only. What a *script* draws is silenced here; what Keras
draws by itself (initial weights, shuffles) is not.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf


def silence() -> None:
    """Replaces what scripts draw with."""
    keras.random.normal = tf.random.normal = _normal
    keras.random.uniform = tf.random.uniform = _uniform


def _normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, **_: Any) -> Any:
    return mean + stddev * _wave(shape, dtype)


def _uniform(shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, **_: Any) -> Any:
    if dtype is not None and tf.as_dtype(dtype).is_integer:
        whole = tf.cast(tf.floor(_uniform(shape, float(minval), float(maxval))), dtype)
        # A wave that rounds to 1 would give the bound itself.
        return tf.minimum(whole, tf.cast(maxval - 1, dtype))
    return minval + (maxval - minval) * (0.5 + 0.5 * _wave(shape, dtype))


def _wave(shape: Any, dtype: Any) -> Any:
    """Numbers from -1 to 1 that differ within a row, and do not from row to row."""
    # Of `tf.shape(x)` all but the number of rows is known.
    is_of_tensor = tf.is_symbolic_tensor(shape) and shape.op.type == "Shape"
    is_known = tf.is_symbolic_tensor(shape) and not is_of_tensor
    known = (
        tuple(shape.op.inputs[0].shape) if is_of_tensor else tuple(tf.get_static_value(shape) if is_known else shape)
    )
    row = [int(each) for each in known[1:]]
    wave = np.sin(1.0 + np.arange(int(np.prod(row)))).reshape(row)
    return tf.broadcast_to(tf.constant(wave, dtype or keras.config.floatx()), [shape[0], *row])
