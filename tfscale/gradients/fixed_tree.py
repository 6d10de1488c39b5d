"""In which order are the numbers of logical replicas added up, so that every device gets the same bits?

In that of a binary tree over the L logical replicas, which depends on L alone. A device adds up the subtrees that lie
within its own, one part after the other, and keeps at most 2 log2 L sums meanwhile. The roots of these subtrees travel,
each in a place of its own in which all other devices have zeros: `x + 0` is exact, in whichever order. From the roots
each device goes on to the root of the tree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.replicas.all_reduce import all_reduce_sum, replica_number
from tfscale.replicas.replica_batch import first_logical
from tfscale.replicas.share import num_replicas

Range = tuple[int, int]


class TreeSchedule(NamedTuple):
    """How devices add up in the order of the tree. Each list is by what its field says."""

    sums_after: tuple[int, ...]
    """By logical replica: how often the two newest sums of its device are added up when it is done."""
    roots: tuple[Range, ...]
    """The subtrees of which some device has all leaves and none has those of a larger one, in the order of leaves."""
    first_root: tuple[int, ...]
    """By device: the first of its roots; and at the end how many there are."""
    sums_of_roots: tuple[int, ...]
    """By root: how often the two newest sums are added up when it is there."""

    @property
    def depth(self) -> int:
        """The most sums that a device keeps at a time."""
        deepest = most = 0
        starts = {self.roots[first][0] for first in self.first_root[:-1]}
        for leaf, sums in enumerate(self.sums_after):
            deepest = 1 if leaf in starts else deepest + 1
            most = max(most, deepest)
            deepest -= sums
        return most


@functools.cache
def tree_schedule(num_logical: int, replicas: int) -> TreeSchedule:
    """How so many devices add up the numbers of so many logical replicas.

    Args:
        num_logical: L, at least `replicas`.
        replicas: N.

    Example:
        >>> from tfscale.gradients.fixed_tree import tree_schedule
        >>> tree_schedule(8, 2).roots, tree_schedule(8, 3).roots
        (((0, 4), (4, 8)), ((0, 2), (2, 4), (4, 5), (5, 6), (6, 8)))
        >>> tree_schedule(4, 1)
        TreeSchedule(sums_after=(0, 1, 0, 2), roots=((0, 4),), first_root=(0, 1), sums_of_roots=(0,))
    """
    devices = [
        (first_logical(device, replicas, num_logical), first_logical(device + 1, replicas, num_logical))
        for device in range(replicas)
    ]
    nodes = _nodes(0, num_logical)
    sums_after = [
        sum(first <= low and high == leaf + 1 for low, high in nodes)
        for first, stop in devices
        for leaf in range(first, stop)
    ]
    roots = [root for device in devices for root in _roots_within((0, num_logical), device)]
    first_root = [next(place for place, root in enumerate(roots) if root[0] == first) for first, _ in devices]
    sums_of_roots = [sum(low < root[0] and high == root[1] for low, high in nodes) for root in roots]
    return TreeSchedule(tuple(sums_after), tuple(roots), (*first_root, len(roots)), tuple(sums_of_roots))


def _halves(node: Range) -> tuple[Range, Range]:
    low, high = node
    middle = low + 2 ** ((high - low - 1).bit_length() - 1)
    return (low, middle), (middle, high)


def _nodes(low: int, high: int) -> list[Range]:
    """All sums of the tree over these leaves."""
    if high - low == 1:
        return []
    return [(low, high), *(node for half in _halves((low, high)) for node in _nodes(*half))]


def _roots_within(node: Range, own: Range) -> list[Range]:
    if own[0] <= node[0] and node[1] <= own[1]:
        return [node]
    if node[1] <= own[0] or own[1] <= node[0]:
        return []
    return [root for half in _halves(node) for root in _roots_within(half, own)]


def fold(values: Sequence[Any], sums: Sequence[int], add: Callable[[Any, Any], Any]) -> list[Any]:
    """The sums that are left when, after each value, so often the two newest are added up.

    Example:
        >>> fold("abcd", tree_schedule(4, 1).sums_after, lambda left, right: f"({left}+{right})")
        ['((a+b)+(c+d))']
    """
    left: list[Any] = []
    for value, count in zip(values, sums, strict=True):
        left.append(value)
        for _ in range(count):
            newest = left.pop()
            left[-1] = add(left[-1], newest)
    return left


class TreeSum:
    """Sums over all logical replicas, of which this device runs some, one after the other.

    Args:
        num_logical: Of the run.
        likes: Dense tensors, of which there are such for each logical replica.
    """

    def __init__(self, num_logical: int, likes: Sequence[tf.Tensor]):
        self._schedule = tree_schedule(num_logical, num_replicas())
        self._likes = list(likes)
        self._dtypes = list(dict.fromkeys(each.dtype for each in likes))
        replica = tf.convert_to_tensor(replica_number())
        first_root = tf.constant(self._schedule.first_root)
        self._root, next_root = tf.gather(first_root, replica), tf.gather(first_root, replica + 1)
        self._num_roots = next_root - self._root
        self._first = tf.cast(first_logical(tf.cast(replica, tf.int64), num_replicas(), num_logical), tf.int64)

    def begin(self) -> list[Any]:
        """What a loop carries, before the first logical replica: how many sums are kept, and they."""
        return [tf.constant(0), *(self._room(rows) for rows in self._flat(self._likes))]

    def _room(self, like: tf.Tensor) -> tf.TensorArray:
        depth = self._schedule.depth
        room = tf.TensorArray(like.dtype, depth, clear_after_read=False, element_shape=like.shape)
        zeros = tf.zeros_like(like)
        for place in range(depth):
            room = room.write(place, zeros)
        return room

    def _flat(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """All numbers of one dtype, one after the other."""
        return [
            tf.concat([tf.reshape(each, [-1]) for each in tensors if each.dtype == dtype], axis=0)
            for dtype in self._dtypes
        ]

    def add(self, carried: Sequence[Any], tensors: Sequence[tf.Tensor], index: Any) -> list[Any]:
        """Takes in what the logical replica of this place on the device has found.

        Args:
            carried: As `begin`, or this, returned it.
            tensors: Like those at the beginning.
            index: 0 for the device's first.
        """
        kept, *rooms = carried
        pairs = zip(rooms, self._flat(tensors), strict=True)
        rooms = [room.write(kept, rows) for room, rows in pairs]
        sums = tf.gather(tf.constant(self._schedule.sums_after), self._first + tf.cast(index, tf.int64))

        def two_to_one(done: tf.Tensor, kept: tf.Tensor, rooms: list[Any]) -> tuple[Any, ...]:
            added = [room.write(kept - 2, room.read(kept - 2) + room.read(kept - 1)) for room in rooms]
            return done + 1, kept - 1, added

        _, kept, rooms = tf.while_loop(
            lambda done, *_: done < sums, two_to_one, (tf.constant(0), kept + 1, rooms), parallel_iterations=1
        )
        return [kept, *rooms]

    def end(self, carried: Sequence[Any]) -> list[tf.Tensor]:
        """The sums over all logical replicas, equal on every device, to the bit; by every replica."""
        _, *rooms = carried
        total = len(self._schedule.roots)
        left = total - self._root - self._num_roots
        slots = [
            tf.ensure_shape(
                tf.pad(room.stack()[: self._num_roots], [[self._root, left], [0, 0]]), [total, *room.element_shape]
            )
            for room in rooms
        ]
        received = all_reduce_sum([slot[place] for slot in slots for place in range(total)])
        wholes = {
            dtype: self._whole(received[place * total : (place + 1) * total])
            for place, dtype in enumerate(self._dtypes)
        }
        return self._unflat(wholes)

    def _whole(self, roots: Sequence[tf.Tensor]) -> tf.Tensor:
        (whole,) = fold(roots, self._schedule.sums_of_roots, lambda left, right: left + right)
        # Where roots travel, a zero has lost its sign.
        return whole + tf.zeros([], whole.dtype)

    def _unflat(self, wholes: dict[tf.DType, tf.Tensor]) -> list[tf.Tensor]:
        begins = dict.fromkeys(self._dtypes, tf.constant(0))
        results = []
        for like in self._likes:
            begin, size = begins[like.dtype], tf.size(like)
            results.append(tf.reshape(wholes[like.dtype][begin : begin + size], tf.shape(like)))
            results[-1].set_shape(like.shape)
            begins[like.dtype] = begin + size
        return results
