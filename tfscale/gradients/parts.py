"""What is one of the parts in which a replica runs its rows?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.replicas.own_share import part_of
from tfscale.replicas.replica_batch import ReplicaBatch, has_rows, take_rows
from tfscale.replicas.share import Share


class Part(NamedTuple):
    """The rows of one micro-step, or logical replica."""

    batch: ReplicaBatch
    share: Share
    index: Any
    """0 for the first, which is always there; else an integer tensor, or a number."""


Run = Callable[[Part], list[Any]]


def make_part(batch: ReplicaBatch, share: Share, index: Any, bounds: tuple[Any, Any]) -> Part:
    """The rows from `bounds[0]` to `bounds[1]`."""
    counted = (tf.cast(bounds[1] - bounds[0], tf.float32)) * share.is_counted(tf.float32)
    first_row = share.first_row + tf.cast(bounds[0], tf.int64)
    own = share._replace(
        num_examples=counted,
        weight=part_of(counted, share.global_examples),
        first_row=first_row,
        is_part=True,
        micro_step=index,
    )
    return Part(rows_of(batch, bounds), own, index)


def rows_of(batch: ReplicaBatch, bounds: tuple[Any, Any]) -> ReplicaBatch:
    """The rows from `bounds[0]` to `bounds[1]` of all that has rows."""
    return batch._replace(data=take_rows(batch.data, *bounds, batch.whole))


def with_rows(batch: ReplicaBatch, rows: int | None) -> ReplicaBatch:
    """Lets shapes say how many rows there are, which a slice between two tensors does not; or, for None, not say it."""

    def reshaped(leaf: tf.Tensor) -> tf.Tensor:
        shape = [rows, *leaf.shape[1:]]
        return tf.ensure_shape(leaf, shape) if rows else tf.compat.v1.placeholder_with_default(leaf, shape)

    leaves = [
        reshaped(leaf) if isinstance(leaf, tf.Tensor) and has_rows(leaf) and str(place) not in batch.whole else leaf
        for place, leaf in enumerate(tf.nest.flatten(batch.data))
    ]
    return batch._replace(data=tf.nest.pack_sequence_as(batch.data, leaves))
