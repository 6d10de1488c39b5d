"""How long is a gradient?"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def squared_norm(gradient: Any) -> tf.Tensor:
    """The sum of the squares of a gradient's numbers, in float32.

    Args:
        gradient: Tensor, or `tf.IndexedSlices`, of which a row that was looked up twice counts with the sum of its
            gradients.

    Example:
        >>> import tensorflow as tf
        >>> from tfscale.exact.norms import squared_norm
        >>> rows = tf.IndexedSlices(tf.constant([[1.0], [2.0], [3.0]]), tf.constant([4, 0, 4]))
        >>> float(squared_norm(rows)), float(squared_norm(tf.constant([3.0, 4.0])))
        (20.0, 25.0)
    """
    if isinstance(gradient, tf.IndexedSlices):
        rows, places = tf.unique(gradient.indices)
        gradient = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    # Reads it once, and writes nothing of its size.
    return 2.0 * tf.nn.l2_loss(tf.cast(gradient, tf.float32))
