"""How do a few numbers that must stay exact travel with gradients in bfloat16, and not in a collective of their own?

A collective of one number takes a millisecond between workers. Three bfloat16 numbers hold the 24 bits of a float32,
and a sum is exact where all replicas but one give 0: so each replica has a place of its own for its parts, and adds up
in float32 what comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfscale.replicas.all_reduce import replica_id, sum_as_they_are
from tfscale.replicas.packs import is_dense, size_bytes
from tfscale.replicas.share import num_replicas

_PARTS = 3
# What a slow link (1 Gbit/s) carries in half of the time that a collective takes to begin. Not tuned.
_MOST_BYTES = 64 * 1024
# Of a float32 number: sign, exponent and the first 7 bits after the point, which are what a bfloat16 has.
_UPPER_HALF = -(2**16)


def sum_with_riders(exact: Sequence[Any], narrow: Sequence[tf.Tensor]) -> tuple[list[Any], list[tf.Tensor]]:
    """Sums both over all replicas; small float32 tensors travel with bfloat16 ones, others in their own collective.

    Args:
        exact: Tensors, `tf.IndexedSlices` or None, in 32 bits or more.
        narrow: What they travel with, each in its own dtype.

    Returns:
        The sums of both. Riders below 1e-33 may lose their last 16 bits.
    """
    replicas = num_replicas()
    riders = [index for index, tensor in enumerate(exact) if _can_ride(tensor)]
    num_bytes = _PARTS * replicas * sum(size_bytes(exact[index]) for index in riders) // 2
    if not riders or tf.bfloat16 not in {each.dtype for each in narrow} or num_bytes > _MOST_BYTES:
        summed = sum_as_they_are([*exact, *narrow])
        return summed[: len(exact)], summed[len(exact) :]
    seats = take_seats([exact[index] for index in riders], replica_id(), replicas)
    left = [None if index in riders else tensor for index, tensor in enumerate(exact)]
    *summed, arrived = sum_as_they_are([*left, *narrow, seats])
    for index, total in zip(riders, add_up(arrived, [exact[index].shape for index in riders]), strict=True):
        summed[index] = total
    return summed[: len(exact)], summed[len(exact) :]


def take_seats(riders: Sequence[tf.Tensor], replica: int, num_replicas: int) -> tf.Tensor:
    """Returns what a replica gives to the sum: bfloat16 `[replicas, 3, numbers]`, 0 but for its own row.

    Example:
        >>> import tensorflow as tf
        >>> from tfscale.gradients.compression.riders import add_up, take_seats
        >>> third = tf.constant([1 / 3])
        >>> seats = take_seats([third], replica=0, num_replicas=2) + take_seats([third], replica=1, num_replicas=2)
        >>> seats.dtype, add_up(seats, [third.shape])[0].numpy() == 2 * third.numpy()
        (tf.bfloat16, array([ True]))
    """
    left = tf.concat([tf.reshape(rider, [-1]) for rider in riders], axis=0)
    parts = []
    for _ in range(_PARTS):
        # Cut and not rounded, so that the largest numbers stay finite.
        upper = tf.bitcast(tf.bitwise.bitwise_and(tf.bitcast(left, tf.int32), _UPPER_HALF), tf.float32)
        parts.append(tf.cast(upper, tf.bfloat16))
        # Nothing is left of an infinity.
        left = tf.where(tf.math.is_finite(upper), left - upper, 0.0)
    return tf.pad(tf.stack(parts)[tf.newaxis], [[replica, num_replicas - 1 - replica], [0, 0], [0, 0]])


def add_up(seats: tf.Tensor, shapes: Sequence[tf.TensorShape]) -> list[tf.Tensor]:
    """Returns the sums of riders of some shapes, from what all replicas gave; the same on each of them."""
    # The parts of one replica first: that is its number again, without rounding.
    totals = tf.reduce_sum(tf.reduce_sum(tf.cast(seats, tf.float32), axis=1), axis=0)
    flat = tf.split(totals, [shape.num_elements() for shape in shapes])
    return [tf.reshape(total, shape) for total, shape in zip(flat, shapes, strict=True)]


def _can_ride(tensor: Any) -> bool:
    return is_dense(tensor) and tensor.dtype == tf.float32 and tensor.shape.is_fully_defined()
