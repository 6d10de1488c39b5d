"""What has been put into a list of tensors, as loops of a graph take their rows from, and leave what they make in?"""

from __future__ import annotations

from typing import Any

from tfscale.replicas.replica_walk import LOOPS, Frame, ReplicaWalk

# They take one tensor out of a list.
LIST_READS = frozenset(("TensorListGetItem", "TensorListPopBack"))
_PUTS = {"TensorListPushBack": 1, "TensorListSetItem": 2}
_HAND_ON = frozenset(("Identity", "TensorListPopBack", "TensorListResize"))

Tensors = list[tuple[Frame, Any]]


def put_into(walk: ReplicaWalk, frame: Frame, listed: Any) -> tuple[Tensors, Tensors]:
    """Tensors whose parts, along their first axis, a list was made of; and those that were put into it one by one.

    Args:
        walk: Through the graphs.
        frame: Where the list is.
        listed: A tensor that is a list of others.
    """
    whole, parts = Tensors(), Tensors()
    left, seen = [(frame, listed)], set[tuple[int, int, str]]()
    while left:
        frame, listed = left.pop()
        place = id(frame.graph), id(frame.call), listed.name
        if place in seen:
            continue
        seen.add(place)
        op = listed.op
        if op.type == "Placeholder":
            left += walk.behind_argument(frame, listed) or ()
        elif op.type in LOOPS:
            body = walk.body_of(op, frame)
            left.append((frame, op.inputs[listed.value_index]))
            left += [] if body is None else [(body, body.graph.outputs[listed.value_index])]
        elif op.type == "TensorListFromTensor":
            whole.append((frame, op.inputs[0]))
        elif op.type in _PUTS:
            parts.append((frame, op.inputs[_PUTS[op.type]]))
            left.append((frame, op.inputs[0]))
        elif op.type in _HAND_ON:
            left.append((frame, op.inputs[0]))
    return whole, parts
