"""Along which of its axes does an operation make something of the order of its numbers: is it that of the rows?

`tf.roll(rows, 1, axis=0)`, `rows[::-1]`, `tf.sort(scores, axis=0)`, `tf.nn.softmax(scores, axis=0)`: as many rows are
as before, of which each replica has its own. But each is made of another one, or of all.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_LAST = frozenset(("LogSoftmax", "Softmax", "TopKV2"))
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
