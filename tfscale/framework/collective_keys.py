"""The unpromised names by which replicas meet in the same collective: after Ctrl-C, and in a loop whose rows vary."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfscale.framework.graphs import graphs_around
from tfscale.framework.hooks import read
from tfscale.step_context import Slot

# So many of the first bits of a size are kept: a sixteenth at most is sent for nothing.
_KEPT_BITS = 5
# For each bit more of a size: the least such size, and by how much what is dropped grows.
_POWERS = [2**bit for bit in range(_KEPT_BITS, 31)]
_UNITS = [power // 2**_KEPT_BITS for power in _POWERS]
# Sizes that can be told from each other, and keys of one call that can: together they are the negative numbers.
_NUM_SIZES = 2**9
_NUM_KEYS = 2**31 // _NUM_SIZES
_SIZE = Slot[tf.Tensor]("size_of_collective")


class Alignment:
    """Lets the replicas of this process count their collectives from the same number, as each call begins.

    Why: TensorFlow counts for each replica by itself: the key of its next collective is a number that Python makes as a
    function is called, one replica after the other. Where Ctrl-C comes in between, some have counted one more, for
    good: each waits for a peer that never comes in the next collective, whoever calls it.
    Breaks first: tests/training/test_interrupt.py.

    Args:
        launchers: What launches the collectives of each replica.
    """

    def __init__(self, launchers: Sequence[Any]) -> None:
        keys, group = read(launchers[0], "_collective_keys"), read(launchers[0], "_group_key")
        self._next: dict[str, int] = read(keys, "_instance_key_table")[group]

    def align_when_called(self) -> None:
        """Has them aligned when the function is called that is traced now, before any replica has a key of it."""
        around = graphs_around(tf.compat.v1.get_default_graph())
        graph = next(each for each in around if not getattr(each, "is_control_flow_graph", False))
        if tf.executing_eagerly() or not graph.building_function:
            return
        with graph.as_default():
            # What is captured by the same name a second time is captured once, also by a function that calls this one.
            read(graph, "capture_call_time_value")(self._align, tf.TensorSpec((), tf.int32), key=self)

    def _align(self) -> tf.Tensor:
        """Lets all count on from the one that is ahead."""
        self._next.update(dict.fromkeys(self._next, max(self._next.values())))
        return tf.constant(0)


def size_to_send(sizes: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """What is sent of tensors whose sizes are known only as they are sent.

    Args:
        sizes: Int32, of any shape.

    Returns:
        How many elements are sent, a few more, in the same shape; and for each one of the first 512 numbers of 32 bits,
        which stands for so many.

    Example:
        >>> [(int(sent), int(name) % 512) for sent, name in map(size_to_send, (0, 7, 32, 33, 1000))]
        [(1, 1), (7, 7), (32, 96), (34, 97), (1024, 176)]
    """
    sizes = tf.expand_dims(tf.maximum(sizes, 1), -1)
    # Only what TensorFlow computes of int32 on the host, also for GPUs: no device is waited for.
    is_as_large = tf.minimum(sizes // _POWERS, 1)
    dropped = tf.reduce_sum(is_as_large, -1)
    unit = 1 + tf.reduce_sum(is_as_large * _UNITS, -1)
    kept = (sizes[..., 0] + unit - 1) // unit
    number = kept + tf.minimum(dropped, 1) * (dropped + _KEPT_BITS - 1) * 2 ** (_KEPT_BITS - 1)
    return kept * unit, number + tf.int32.min


def sending_sizes(name: tf.Tensor) -> contextlib.AbstractContextManager[None]:
    """Has what is launched inside, of one size and dtype, meet in a collective of its own for that size.

    Why: a collective in a loop has one key, by which TensorFlow keeps the shape with which its members came first.
    Where a later turn of the same call has another one, as for the last batch of a data set, that is an error, and all
    later collectives of the process fail. So what may have other sizes is filled up to one of a few, each with its key.
    Breaks first: tests/training/step/test_several_steps.py.

    Args:
        name: As of `size_to_send`.
    """
    return _SIZE.carrying(name)


def send_by_size(tensor: Any, send: Callable[[Any], Any]) -> Any:
    """What `send` makes of a tensor for each replica, by `sending_sizes` where its shape is known only as it is sent.

    Args:
        tensor: Of one shape on all replicas.
        send: Takes a vector, and returns that of all replicas: their sum, or one after the other.

    Returns:
        As `send` would have returned, with the tensor's axes.
    """
    if tf.executing_eagerly() or tensor.shape.is_fully_defined() or _SIZE.value is not None:
        return send(tensor)
    shape, size = tf.shape(tensor), tf.size(tensor)
    most, name = size_to_send(size)
    with sending_sizes(name):
        received = send(tf.pad(tf.reshape(tensor, [-1]), [[0, most - size]]))
    own = tf.reshape(received, [-1, most])[:, :size]
    back = tf.reshape(own, tf.concat([tf.shape(own)[:1] * shape[:1], shape[1:]], 0))
    back.set_shape(tf.TensorShape([None]).concatenate(tensor.shape[1:]))
    return back


def key_of_size(key: Any) -> Any:
    """The key of a collective, of the size that it is sent with: a negative number, which TensorFlow never counts to.

    Args:
        key: As TensorFlow has counted it, an int32 scalar.
    """
    name = _SIZE.value
    return key if name is None else key % _NUM_KEYS * _NUM_SIZES + name
