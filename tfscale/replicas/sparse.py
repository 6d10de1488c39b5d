"""What is the sparse gradient of the global batch, when each replica has that of its rows?

A lookup of tokens gives one row of gradient for each token, and on one device the batch gives all of them: the
replicas' rows are put one after the other. A lookup of positions gives one row for each position, whatever the batch,
and on one device that is the sum over its examples: the replicas' rows are added. A lookup of the different tokens of a
batch (`tf.unique` or `sparse_gradient=True`, by which TensorFlow looks up sparse inputs) gives one row for each of
them: rows of the same token are added. An optimizer that squares each row knows the difference.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfscale.replicas.graph_walk import depends_on_batch, is_made_by
from tfscale.replicas.marks import mark_equal
from tfscale.replicas.share import num_replicas

# What makes the different ones of many places, and as which of its outputs.
_UNIQUE = dict.fromkeys(("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"), 0)
_UNIQUE |= dict.fromkeys((f"SparseSegment{kind}GradV2" for kind in ("Sum", "Mean", "SqrtN")), 1)


def is_same_for_every_batch(gradient: Any) -> bool:
    """Whether it is a sparse gradient whose rows do not depend on the examples.

    In a graph that is proven. Without one (`run_eagerly`) rows in strictly rising order are taken for positions.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return False
    if tf.is_symbolic_tensor(gradient.indices):
        return not depends_on_batch(gradient.indices)
    return bool(tf.reduce_all(gradient.indices[1:] > gradient.indices[:-1]))


def merge_unique_rows(gathered: Any, own: Any) -> Any:
    """Adds up rows of the same place where a part of the batch has no two of them; leaves any other gradient as it is.

    Args:
        gathered: The gradients of several parts, one after the other.
        own: That of one of them.
    """
    if not is_made_by(own.indices, _UNIQUE):
        return gathered
    # Whoever merges parts of these parts finds a `Unique` again.
    indices, places = tf.unique(gathered.indices)
    values = tf.math.unsorted_segment_sum(gathered.values, places, tf.shape(indices)[0])
    return tf.IndexedSlices(values, indices, own.dense_shape)


def merge_equal_rows(gathered: Any, own: Any) -> Any:
    """Adds up rows of the replicas where one device has one for all of them; leaves any other gradient as it is.

    Args:
        gathered: The gradients of all replicas, one after the other.
        own: That of this replica.
    """
    if not is_same_for_every_batch(own):
        return merge_unique_rows(gathered, own) if isinstance(own, tf.IndexedSlices) else gathered
    count = tf.size(own.indices)
    replicas = num_replicas()

    def merged() -> tuple[tf.Tensor, tf.Tensor]:
        shape = tf.concat([[replicas, count], tf.shape(gathered.values)[1:]], axis=0)
        return tf.reduce_sum(tf.reshape(gathered.values, shape), axis=0), own.indices

    # Where a position is that of the longest example, a replica may have fewer. So only what all have is compared:
    # vectors of different lengths are one number in TensorFlow's `Equal`, of which some graphs reduce an axis.
    everyone = tf.tile(own.indices, [replicas])
    shortest = tf.minimum(tf.size(gathered.indices), tf.size(everyone))
    is_as_long = tf.equal(tf.size(gathered.indices), tf.size(everyone))
    are_alike = tf.reduce_all(tf.equal(gathered.indices[:shortest], everyone[:shortest]))
    all_equal = tf.logical_and(is_as_long, are_alike)
    # Where one replica has others than all, none has the same as all.
    mark_equal(all_equal)
    values, indices = tf.cond(all_equal, merged, lambda: (gathered.values, gathered.indices))
    return tf.IndexedSlices(values, indices, own.dense_shape)
