"""What is a gradient without the factor that a `LossScaleOptimizer` puts on the loss?

The factor may change before what was kept in one step is used in the next: what is kept is kept without it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def scaled(value: tf.Tensor, scale: Any) -> tf.Tensor:
    """`value` times the factor, a number or a scalar tensor; nothing is computed where there is none.

    Example:
        >>> import tensorflow as tf
        >>> from tfscale.exact.loss_scale import scaled, unscaled
        >>> float(scaled(tf.constant(1.5), 4.0)), float(unscaled(tf.constant(6.0), 4.0))
        (6.0, 1.5)
    """
    return value if _is_none(scale) else value * tf.cast(scale, value.dtype)


def unscaled(value: tf.Tensor, scale: Any) -> tf.Tensor:
    """`value` without the factor."""
    return value if _is_none(scale) else value / tf.cast(scale, value.dtype)


def _is_none(scale: Any) -> bool:
    return isinstance(scale, float) and scale == 1.0
