"""Along which of its axes does an operation make something of the order of its numbers: is it that of the rows?

`tf.roll(rows, 1, axis=0)`, `rows[::-1]`, `tf.sort(scores, axis=0)`, `tf.nn.softmax(scores, axis=0)`: as many rows are
as before, of which each replica has its own. But each is made of another one, or of all.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_LAST = frozenset(("LogSoftmax", "Softmax", "TopKV2"))
# Where rows come from: an argument, or what comes next of an iterator, if there is more.
_ROWS = frozenset(("If", "IteratorGetNext", "OptionalGetValue", "Placeholder", "StatelessIf"))
# What they give has no rows any more where they go along the first axis.
_TOGETHER = frozenset(("All", "Any", "ArgMax", "ArgMin", "Max", "Mean", "Min", "Prod", "Sum"))
_CUMULATIVE = frozenset(("Cumprod", "Cumsum", "CumulativeLogsumexp"))


def axes_of_order(op: Any) -> list[int]:
    """The axes along which results are made of other places; none for most operations, or where nobody knows.

    Args:
        op: An operation of a graph.
    """
    rows = op.inputs[0] if len(op.inputs) else None
    if rows is None or not rows.shape.rank:
        return []
    rank = rows.shape.rank
    if op.type in _LAST:
        return [rank - 1] if rows.dtype.is_floating else []
    if op.type in _CUMULATIVE:
        # Of whole numbers it is where ragged rows begin.
        return _constants(op.inputs[1], rank) if rows.dtype.is_floating else []
    if op.type == "Roll":
        return _constants(op.inputs[2], rank)
    if op.type == "ReverseV2":
        return _constants(op.inputs[1], rank)
    if op.type == "RandomShuffle":
        return [0]
    return _reversed_axes(op) if op.type == "StridedSlice" else []


def _constants(axes: Any, rank: int) -> list[int]:
    known = tf.get_static_value(axes)
    return [] if known is None else [int(each) % rank for each in known.reshape(-1)]


def _reversed_axes(op: Any) -> list[int]:
    strides = tf.get_static_value(op.inputs[3])
    if strides is None or op.get_attr("ellipsis_mask") or op.get_attr("new_axis_mask"):
        return []
    return [axis for axis, stride in enumerate(strides) if stride < 0]


def is_axis_of_rows(tensor: Any, axis: int) -> bool:
    """Whether an axis that may be that of the rows is so: the way back from it leads to the first axis of the data.

    Args:
        tensor: Of a graph, made of a replica's rows.
        axis: One of its axes, which is as long as the replica has rows.
    """
    left, seen = [(tensor, axis)], set[tuple[int, int]]()
    while left:
        tensor, axis = left.pop()
        if tensor.op.type in _ROWS and axis == 0:
            return True
        if (id(tensor), axis) not in seen:
            seen.add((id(tensor), axis))
            left += _passed_on(tensor, axis)
    return False


def _passed_on(tensor: Any, axis: int) -> list[tuple[Any, int]]:
    """What has the same axis of those of which a tensor is made, and at which place; nothing where nobody knows."""
    op = tensor.op
    if op.type == "Transpose":
        order = tf.get_static_value(op.inputs[1])
        if order is None and tensor.shape.rank == 2:
            # `tf.nn.softmax(scores, axis=0)` reckons in the graph which axes it exchanges.
            order = (1, 0)
        return [] if order is None else [(op.inputs[0], int(order[axis]))]
    if op.type == "MatMul":
        return [(op.inputs[axis], int(axis != op.get_attr("transpose_b" if axis else "transpose_a")))]
    if "Segment" in op.type or (op.type in _TOGETHER and 0 in _constants(op.inputs[1], op.inputs[0].shape.rank or 1)):
        return []
    return [(each, axis) for each in op.inputs if _is_passed_on(each, tensor, axis)]


def _is_passed_on(given: Any, result: Any, axis: int) -> bool:
    """Whether a tensor that an operation is given has the same axis at the same place as its result."""
    ranks = given.shape.rank, result.shape.rank
    if not ranks[0] or not ranks[1]:
        return False
    return axis < ranks[0] and (axis == 0 or ranks[0] == ranks[1]) and given.shape[axis] == result.shape[axis]
