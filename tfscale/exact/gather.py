"""How does code that mixes the rows of a batch see all of them?"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.attached import with_attached
from tfscale.exact.terms import gradients_are_sums
from tfscale.framework.autograph import left_alone
from tfscale.replicas.all_reduce import all_gather, all_reduce_sum, replica_number
from tfscale.replicas.replica_batch import ReplicaBatch, num_rows
from tfscale.replicas.share import Share, current_share, in_share


@left_alone
def gather_rows(x: Any) -> Any:
    """The rows of the whole global batch, inside of a step on N replicas; `x` itself on one.

    For code in which the rows of a batch meet: contrastive losses, in-batch negatives, `x - mean(x, 0)`, pairs. With
    x_i `[n_i, ...]` on replica i it returns their concatenation `[n, ...]`, in the order of the global batch and equal
    on all replicas. It is differentiable: the gradient of x_i is that of the loss of the global batch. It costs one
    collective forward and one backward, of the size of all rows.

    Args:
        x: Tensor `[n_i, ...]` of any dtype with a row for each of this replica's examples, or None.

    Returns:
        Tensor `[n, ...]` of the same dtype; None for None. Outside of a step and of `strategy.run`, and on one replica,
        `x`.

    Raises:
        ModelError: Inside of a micro-step (`micro_batch`), which sees only a part of the rows of its replica.

    Example:
        >>> import keras, numpy as np, tensorflow as tf, tfscale
        >>> tfscale.simulate_replicas(2)
        >>> dp = tfscale.DataParallel(global_batch=3)
        >>> class Spread(keras.Sequential):
        ...     def train_step(self, rows):
        ...         rows = tfscale.gather_rows(rows)  # [2, 1] and [1, 1] become [3, 1]
        ...         return {"spread": tf.math.reduce_variance(rows)}
        >>> with dp.scope():
        ...     model = dp.prepare(Spread([keras.layers.Dense(1)]))
        ...     model.compile()
        >>> history = model.fit(np.array([[1.0], [2.0], [6.0]]), batch_size=3, verbose=0).history
        >>> round(float(history["spread"][0]), 3)  # as of [1, 2, 6] on one device
        4.667
    """
    share = current_share()
    if share is None and x is not None and tf.distribute.in_cross_replica_context():
        return x
    if x is None or (share is not None and share.is_whole):
        return x
    if share is not None and share.is_part:
        raise ModelError(
            "With `micro_batch` or `logical_replicas` a step sees a part of the rows at a time, and cannot gather the "
            "whole batch.\n"
            "Received: a call of `tfscale.gather_rows` in such a part. Leave these out."
        )
    return with_attached(tf.convert_to_tensor(x), lambda own: _gathered(own, share))


def _gathered(x: Any, share: Share | None) -> Any:
    if share is None:
        # In a loop by hand, where every loss is a part of a sum already.
        return all_gather(x)
    own = x[: tf.cast(share.num_examples, tf.int64)]
    if not x.dtype.is_floating:
        return all_gather(own)
    end = share.first_row + tf.shape(own, out_type=tf.int64)[0]

    @tf.custom_gradient
    def gathered(rows: tf.Tensor) -> Any:
        def gradient(slope: tf.Tensor) -> tf.Tensor:
            # In a step of the user's own the losses, and so their slopes, are not weighted yet.
            weight = slope_weight(share, slope.dtype)
            with in_share(share):
                (total,) = all_reduce_sum([tf.math.multiply_no_nan(slope, weight)])
            return tf.math.divide_no_nan(total[share.first_row : end], weight)

        return all_gather(rows), gradient

    return gathered(own)


def gather_batch(batch: ReplicaBatch) -> Any:
    """The data of the whole global batch, given a replica's; to be called by every replica, in its share."""
    count, known = tf.cast(batch.num_examples, tf.int64), dict(batch.whole)

    def gathered(leaf: Any, is_whole: Any) -> Any:
        if leaf is None or isinstance(is_whole, tuple):
            return leaf
        if is_whole is None:
            return all_gather(leaf[:count])
        # Told as it runs: what every replica has whole comes from the first.
        all_or_none = tf.cast(num_rows(leaf), tf.int64) * tf.cast(tf.equal(replica_number(), 0), tf.int64)
        return all_gather(leaf[: tf.where(is_whole, all_or_none, count)])

    leaves = [gathered(leaf, known.get(str(place))) for place, leaf in enumerate(tf.nest.flatten(batch.data))]
    return tf.nest.pack_sequence_as(batch.data, leaves)


def slope_weight(share: Share, dtype: tf.DType) -> tf.Tensor:
    """By what the gradients of this replica will be multiplied after the backward pass; 1 where its loss was."""
    is_weighted = share.weights_gradients and not gradients_are_sums()
    return tf.cast(share.weight if is_weighted else 1.0, dtype)
