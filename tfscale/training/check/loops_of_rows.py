"""Does a loop of a graph take one row after the other, and what does it keep from one to the next?

In `tf.map_fn`, or `for row in rows`, each number is one row's. A sum that such a loop keeps is a part of the sum over
the batch; a maximum, a product or a running mean is of the rows that its own replica has, in their order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from tfscale.replicas.graph_walk import SUMS
from tfscale.replicas.replica_walk import LOOPS, Frame, ReplicaWalk
from tfscale.training.check.axes_of_rows import AxesOfRows, is_of_rows
from tfscale.training.check.tensor_lists import LIST_READS, put_into


class LoopsOfRows:
    """Tells such loops from those over time, or over parts of a batch.

    Args:
        walk: Through the graphs.
        axes: Of the rows in them.
        sizes: How many rows replicas have; None for any number, and nothing if it does not matter.
    """

    def __init__(self, walk: ReplicaWalk, axes: AxesOfRows, sizes: Collection[int | None]) -> None:
        self._walk = walk
        self._axes = axes
        self._sizes = sizes

    def is_over_rows(self, loop: Any, frame: Frame) -> bool:
        """Whether each turn of a loop takes one row, of those of a replica.

        Args:
            loop: An operation.
            frame: Where it is.
        """
        body = self._walk.body_of(loop, frame)
        return body is not None and any(self._takes_row(body, each) for each in body.graph.get_operations())

    def _takes_row(self, frame: Frame, op: Any) -> bool:
        if op.type in LIST_READS:
            whole, parts = put_into(self._walk, frame, op.inputs[0])
            # On the way back a loop takes what that on the way there has left.
            there = [each for each, _ in parts if each.call is not frame.call]
            return any(map(self._is_body_over_rows, there)) or any(self._may_be_of_rows(*each, 0) for each in whole)
        return any(self._may_be_of_rows(frame, op.inputs[0], axis) for axis in _taken_along(op))

    def _is_body_over_rows(self, frame: Frame) -> bool:
        is_body = frame.outer is not None and frame.call.type in LOOPS
        return bool(is_body and frame.outer and self.is_over_rows(frame.call, frame.outer))

    def _may_be_of_rows(self, frame: Frame, tensor: Any, axis: int) -> bool:
        if tensor.shape.rank is None or axis >= tensor.shape.rank:
            return False
        length = tensor.shape[axis]
        is_as_long = length is None or not self._sizes or None in self._sizes
        if not is_as_long and not is_of_rows(length, self._sizes):
            return False
        return self._axes.holds(frame, tensor, axis) is not False and self._walk.may_differ_by_rows(frame, tensor)


def kept_from_row_to_row(body: Frame) -> list[Any]:
    """What a turn of a loop is given by the one before, and does anything else with than adding to it.

    Args:
        body: That of the loop.
    """
    turns = zip(body.graph.inputs, body.graph.outputs, strict=False)
    kept = [(given, made) for given, made in turns if given.dtype.is_floating and made is not given]
    names = {name for given, made in kept for name in _made_of(_but_sums(given, made))}
    return [given for given, _ in kept if given.op.name in names]


def _but_sums(own: Any, made: Any) -> list[Any]:
    """Of what a tensor is made, if it is not `own` and what is added to it."""
    left, rest, is_there = [made], [], False
    while left:
        tensor = left.pop()
        op = tensor.op
        if tensor is own and not is_there:
            is_there = True
        elif op.type == "Sub":
            left.append(op.inputs[0])
            rest.append(op.inputs[1])
        elif op.type in SUMS or op.type == "Identity":
            left += op.inputs
        else:
            rest.append(tensor)
    return rest


def _made_of(tensors: Sequence[Any]) -> set[str]:
    """Names of the operations of which tensors are made, in their own graph."""
    left, names = [each.op for each in tensors], set[str]()
    while left:
        op = left.pop()
        if op.name not in names:
            names.add(op.name)
            left += [each.op for each in op.inputs]
    return names


def _taken_along(op: Any) -> list[int]:
    """The axes along which an operation takes one place, that is another one in each turn."""
    if op.type == "GatherV2":
        axis = tf.get_static_value(op.inputs[2])
        is_one = op.inputs[1].shape.rank == 0 and tf.get_static_value(op.inputs[1]) is None
        return [int(axis)] if is_one and axis is not None else []
    if op.type != "StridedSlice" or op.get_attr("ellipsis_mask") or op.get_attr("new_axis_mask"):
        return []
    begin = tf.get_static_value(op.inputs[1], partial=True)
    count = op.inputs[1].shape[0] or 0
    taken = [axis for axis in range(count) if op.get_attr("shrink_axis_mask") >> axis & 1]
    return [axis for axis in taken if begin is None or begin[axis] is None]
