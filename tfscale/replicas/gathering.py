"""How do rows of all replicas come together in a graph, when one replica has more of them than another?

A collective takes as many from each: they tell each other how many they have, and what one has fewer is filled up.
TensorFlow's own way has a branch of a condition for either case, with collectives in both, which is thrice the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfscale.framework.collective_keys import sending_sizes, size_to_send
from tfscale.framework.replicas import gather_alike


def gather_in_graph(groups: Sequence[Sequence[tf.Tensor]], options: Any) -> list[list[tf.Tensor]]:
    """The rows of all replicas, in the order of the replicas, without gradient.

    To be called by every replica, inside `strategy.run` and in a graph.

    Args:
        groups: Tensors `[n, ...]` of a type that collectives carry; those of a group have as many rows as each other.
        options: `tf.distribute.experimental.CommunicationOptions`, or None.

    Returns:
        Tensors `[sum of n, ...]`, equal on all replicas.
    """
    own = tf.stack([_num_rows(group) for group in groups])
    numbers = tf.reshape(gather_alike(own, options), [-1, len(groups)])
    sent, names = size_to_send(tf.reduce_max(numbers, axis=0))
    each_group = (tf.unstack(each, axis=-1, num=len(groups)) for each in (sent - own, numbers, sent, names))
    # One collective after the other: NCCL would wait for ever for one that another device begins later.
    before, gathered = numbers, []
    for group, missing, num_each, num_sent, name in zip(groups, *each_group, strict=True):
        parts = []
        for each in group:
            filled = _filled_up(each, missing)
            with tf.control_dependencies([before]), _by_its_size(filled, name):
                before = gather_alike(filled, options)
            parts.append(before)
        gathered.append(_own_rows_only(parts, num_each, num_sent))
    return gathered


def _num_rows(group: Sequence[tf.Tensor]) -> tf.Tensor:
    vectors = [each for each in group if each.shape.rank == 1]
    # One operation in place of five.
    return tf.size(vectors[0]) if vectors else tf.shape(group[0])[0]


def _by_its_size(filled: tf.Tensor, name: tf.Tensor) -> contextlib.AbstractContextManager[None]:
    # Where other axes may differ from batch to batch, too, the number of rows does not say it.
    return sending_sizes(name) if filled.shape[1:].is_fully_defined() else contextlib.nullcontext()


def _filled_up(rows: tf.Tensor, missing: tf.Tensor) -> tf.Tensor:
    if rows.shape.rank is None:
        at_the_end = tf.reshape(tf.one_hot(1, 2 * tf.rank(rows), dtype=tf.int32), [-1, 2])
    else:
        at_the_end = tf.constant([[0, 1], *[[0, 0]] * (rows.shape.rank - 1)])
    filled = tf.pad(rows, missing * at_the_end)
    filled.set_shape(tf.TensorShape([None]).concatenate(rows.shape[1:]))
    return filled


def _own_rows_only(parts: list[tf.Tensor], numbers: tf.Tensor, num_sent: tf.Tensor) -> list[tf.Tensor]:
    """Without what replicas filled up; most batches are even, and need no copy."""

    def taken() -> list[tf.Tensor]:
        places = tf.reshape(tf.where(tf.reshape(tf.sequence_mask(numbers, num_sent), [-1])), [-1])
        return [tf.gather(each, places) for each in parts]

    return list(tf.cond(tf.reduce_all(tf.equal(numbers, num_sent)), lambda: parts, taken))
