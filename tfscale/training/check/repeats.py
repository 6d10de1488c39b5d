"""Is the largest of some whole numbers asked for to repeat rows, and told to nobody else?

`tf.repeat(rows, times)` repeats all rows as often as the one that is repeated most, and takes those that were wanted.
So do sums and means of ragged rows, which need the row of each value. What they make does not depend on the largest.
"""

from __future__ import annotations

from typing import Any

# They hand on what they are given, in another shape or type.
_HAND_ON = frozenset(
    ("Cast", "ConcatV2", "ExpandDims", "Identity", "Maximum", "Pack", "Reshape", "Squeeze", "Transpose")
)
# What of a shape is some of its lengths, or as many as they are together.
_TAKE = frozenset(("GatherV2", "Prod", "StridedSlice"))
# (type of an operation, place of what is a shape for it, and does not show in the values that it gives).
_SHAPES = frozenset((("Reshape", 1), ("UnsortedSegmentSum", 2)))


def only_repeats(largest: Any) -> bool:
    """Whether the result of an operation that finds the largest number says only how often rows are repeated.

    Args:
        largest: The operation, of a graph.
    """
    number = largest.outputs[0]
    is_whole = largest.type == "Max" and number.dtype.is_integer
    return is_whole and (_leads_to(number, _of_number) or _leads_to(number, _until_limited))


def _until_limited(op: Any, place: int) -> Any:
    """Whether a number is limited by one other from below and above: it is that one, whatever it was.

    `tf.math.bincount(rows, minlength=n, maxlength=n)` counts how long the rows of `tf.strings.split(...)` are.
    """
    if op.type == "Maximum":
        limit = op.inputs[1 - place]
        limits = op.outputs[0].consumers()
        return all(each.type == "Minimum" and any(one is limit for one in each.inputs) for each in limits)
    return _until_limited if op.type in ("AddV2", "Cast", "Identity", "Mul") else False


def _of_number(op: Any, place: int) -> Any:
    if op.type == "Tile" and place == 1:
        return _of_repeated
    if op.type == "Range":
        return _of_positions
    if op.type == "Size":
        return True
    # The way back of a repetition has a shape that is made of it.
    return True if (op.type, place) in _SHAPES else (_of_number if op.type in _HAND_ON else False)


def _of_positions(op: Any, place: int) -> Any:
    if op.type == "Less" and place == 0:
        return _of_mask
    return _of_positions if op.type in _HAND_ON else False


def _of_mask(op: Any, place: int) -> Any:
    if op.type == "Where":
        return _of_places
    if op.type == "Shape":
        return _of_shape
    return _of_mask if op.type in _HAND_ON and place == 0 else False


def _of_places(op: Any, place: int) -> Any:
    if op.type == "GatherV2":
        return place == 1
    if op.type in ("Shape", "Size"):
        # How many there are does not depend on the largest.
        return True
    if op.type == "UnsortedSegmentSum" and place == 1:
        # On the way back, slopes come to the repeated rows that were taken.
        return True
    return _of_places if op.type in _HAND_ON and place == 0 else False


def _of_repeated(op: Any, place: int) -> Any:
    if op.type == "GatherV2":
        return place == 0
    if op.type == "Shape":
        return _of_shape
    return _of_repeated if op.type in _HAND_ON and place == 0 else False


def _of_shape(op: Any, place: int) -> Any:
    if (op.type, place) in _SHAPES:
        return True
    return _of_shape if op.type in _HAND_ON | _TAKE else False


def _leads_to(tensor: Any, becomes: Any) -> bool:
    """Whether all that is made of a tensor is as `becomes` says: True, False, or what is asked of that in turn."""
    left, seen = [(tensor, becomes)], set[tuple[int, Any]]()
    while left:
        tensor, becomes = left.pop()
        if (id(tensor), becomes) in seen:
            continue
        seen.add((id(tensor), becomes))
        for op in tensor.consumers():
            for place, given in enumerate(op.inputs):
                if given is not tensor:
                    continue
                found = becomes(op, place)
                if not found:
                    return False
                if found is not True:
                    left += [(each, found) for each in op.outputs]
    return True
