"""Is an axis of a tensor that of the rows, where its length alone does not tell?

Of 32 rows and 64 features, 64 may be two rows for each of 32, or features. The way back tells: it leads to the first
axis of the data, or to an axis of a weight, which no row has made.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from tfscale.replicas.replica_walk import LOOPS, Frame, ReplicaWalk
from tfscale.training.check.tensor_lists import LIST_READS, put_into

# Where rows come from: an argument, or what comes next of an iterator, if there is more.
_ROWS = frozenset(("If", "IteratorGetNext", "OptionalGetValue", "Placeholder", "StatelessIf"))
_WEIGHTS = frozenset(("ReadVariableOp",))
# Rows of a weight, one for each of something that may be rows.
_ROWS_OF_WEIGHTS = frozenset(("Gather", "ResourceGather"))
# What they give has no rows any more where they go along the first axis.
_REDUCTIONS = frozenset(("All", "Any", "ArgMax", "ArgMin", "Max", "Mean", "Min", "Prod", "Sum"))
_CONVOLUTIONS = frozenset(("Conv2D", "Conv3D"))

# What they are given is repeated along the first axes of their result, if it has fewer.
_BROADCASTS = frozenset(
    ("Add", "AddV2", "BiasAdd", "Div", "Maximum", "Minimum", "Mul", "Pow", "RealDiv", "SelectV2", "Sub")
)

_Axis = tuple[Frame, Any, int]
_Key = tuple[int, int, str, int]


def is_of_rows(length: int, sizes: Collection[int | None]) -> bool:
    """Whether an axis is as long as if it were that of rows, or of two or more of each, as of pairs or of tokens.

    Args:
        length: Of the axis.
        sizes: How many rows replicas have; None, for any number, says nothing.
    """
    return any((length % size if size else length) == 0 for size in sizes if size is not None)


class AxesOfRows:
    """Follows axes back, each of them once. To be kept no longer than the graphs.

    Args:
        walk: Through these graphs.
    """

    def __init__(self, walk: ReplicaWalk) -> None:
        self._walk = walk
        self._known: dict[_Key, bool | None] = {}

    def holds(self, frame: Frame, tensor: Any, axis: int) -> bool | None:
        """Whether an axis is that of the rows; None where nobody knows.

        Args:
            frame: Where the tensor is.
            tensor: Of a graph, made of a replica's rows.
            axis: One of its axes, as long as the replica has rows, or several times as long.
        """
        left, begun = [(frame, tensor, axis)], set[_Key]()
        while left:
            place = left[-1]
            if _key(place) in self._known:
                left.pop()
                continue
            begun.add(_key(place))
            behind = self._behind(*place)
            found = [_begins(*place), *(self._known.get(_key(each)) for each in behind)]
            # What a loop hands on to itself leads back to where the walk was.
            unknown = [each for each in behind if _key(each) not in self._known and _key(each) not in begun]
            if unknown and True not in found:
                left.append(unknown[0])
                continue
            # What is as long as a weight along this axis is no row of any: it is so for every batch.
            self._known[_key(place)] = True if True in found else False if False in found else None
            left.pop()
        return self._known[_key((frame, tensor, axis))]

    def _behind(self, frame: Frame, tensor: Any, axis: int) -> list[_Axis]:
        """What has the same axis of that of which a tensor is made, in its graph or where that is called."""
        op = tensor.op
        if op.type == "Placeholder" and frame.outer is not None:
            return [(*each, axis) for each in self._walk.behind_argument(frame, tensor) or ()]
        if op.type in LOOPS:
            body = self._walk.body_of(op, frame)
            made = [] if body is None else [(body, body.graph.outputs[tensor.value_index], axis)]
            return [(frame, op.inputs[tensor.value_index], axis), *made]
        if op.type in LIST_READS:
            whole, parts = put_into(self._walk, frame, op.inputs[0])
            return [*((*each, axis + 1) for each in whole), *((*each, axis) for each in parts)]
        if op.type == "TensorListStack":
            whole, parts = put_into(self._walk, frame, op.inputs[0])
            return [*((*each, axis) for each in whole), *((*each, axis - 1) for each in parts if axis)]
        return [(frame, given, place) for given, place in _passed_on(tensor, axis)]


def _key(place: _Axis) -> _Key:
    frame, tensor, axis = place
    return id(frame.graph), id(frame.call), tensor.name, axis


def _begins(frame: Frame, tensor: Any, axis: int) -> bool | None:
    """Whether rows begin here, or a weight does; None in between."""
    if tensor.op.type in _ROWS and (tensor.op.type != "Placeholder" or frame.outer is None):
        return axis == 0
    is_weight = tensor.op.type in _WEIGHTS or (tensor.op.type in _ROWS_OF_WEIGHTS and axis == tensor.shape.rank - 1)
    return False if is_weight else None


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
    if op.type in _CONVOLUTIONS and axis == tensor.shape.rank - 1:
        return [(op.inputs[1], axis)]
    if op.type == "Reshape":
        return _before_reshaping(op.inputs[0], tensor, axis)
    if op.type in _REDUCTIONS:
        return _before_reduction(op, tensor, axis)
    if "Segment" in op.type:
        return []
    return [(each, axis) for each in op.inputs if _is_passed_on(each, tensor, axis)]


def _before_reshaping(given: Any, result: Any, axis: int) -> list[tuple[Any, int]]:
    """The axis with as many places before it, of the same length."""
    if not given.shape.is_fully_defined() or not result.shape.is_fully_defined():
        return [(given, 0)] if axis == 0 and given.shape.rank and given.shape[0] == result.shape[0] else []
    wanted = result.shape[:axis].num_elements()
    for place, length in enumerate(given.shape):
        if given.shape[:place].num_elements() == wanted and length == result.shape[axis]:
            return [(given, place)]
    return []


def _before_reduction(op: Any, result: Any, axis: int) -> list[tuple[Any, int]]:
    given = op.inputs[0]
    along = tf.get_static_value(op.inputs[1])
    if along is None or not given.shape.rank:
        return []
    gone = {int(each) % given.shape.rank for each in along.reshape(-1)}
    kept = [place for place in range(given.shape.rank) if place not in gone]
    if result.shape.rank == given.shape.rank:
        return [] if axis in gone else [(given, axis)]
    return [(given, kept[axis])] if axis < len(kept) else []


def _is_passed_on(given: Any, result: Any, axis: int) -> bool:
    """Whether a tensor that an operation is given has the same axis at the same place as its result."""
    ranks = given.shape.rank, result.shape.rank
    if not ranks[0] or not ranks[1] or (ranks[0] < ranks[1] and result.op.type in _BROADCASTS):
        return False
    return axis < ranks[0] and (axis == 0 or ranks[0] == ranks[1]) and given.shape[axis] == result.shape[axis]
