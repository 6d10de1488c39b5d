"""Is the loss of a loop by hand the mean over a replica's own rows, which no replica has divided further?

The optimizer adds up what the replicas give it: of N such means that is N times the gradient of one device, in silence.
The way back from a mean begins with the same number for every row, over how many rows there are; what was divided by
the number of replicas as well has a part of one there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.replicas.count_notes import noted_parts
from tfscale.replicas.divided import FACTORS
from tfscale.replicas.graph_walk import REPEATS, SAME_VALUES, SIZES, operations_behind, plain_number
from tfscale.replicas.replica_count import has_several_own_rows, own_rows
from tfscale.replicas.replica_walk import Frame, ReplicaWalk, is_collective
from tfscale.replicas.share import num_replicas

_QUOTIENTS = frozenset(("Div", "DivNoNan", "RealDiv"))
_HAND_ON = SAME_VALUES | REPEATS | {"Neg"}
# From the shape of something to how many rows it has.
_COUNTS = frozenset(("Cast", "GatherV2", "Identity", "Prod", "Squeeze", "StridedSlice"))
# So TensorFlow names what a tape makes.
OF_TAPE = "gradient_tape/"


def refuse_own_means(walk: ReplicaWalk, gradients: Sequence[Any]) -> None:
    """Refuses gradients of a mean over the rows of one replica. To be called by a replica, in the graph of its loop.

    Args:
        walk: That of the strategy.
        gradients: Tensors of a graph, as an optimizer gets them.

    Raises:
        ModelError: When a loss is divided by the replica's own rows, and not among the replicas.
    """
    mean = next(_own_means(walk, gradients), None)
    if mean is None:
        return
    raise ModelError(
        "In a function of `strategy.run` a replica's loss is its part of a sum, which the optimizer adds up; of means "
        "over each replica's own rows the sum is several times the gradient of one device.\n"
        f"Received: gradients of a mean over own rows ({mean.name!r}). Divide the loss by "
        "`strategy.num_replicas_in_sync`, which counts each replica's rows there, or write "
        "`tf.nn.compute_average_loss(loss_of_each_example)`."
    )


def are_of_parts(walk: ReplicaWalk, gradients: Sequence[Any]) -> bool:
    """Whether gradients are those of a part of a sum, and of no mean over the rows of one replica.

    Args:
        walk: That of the strategy.
        gradients: Tensors of a graph, in a loop by hand.
    """
    rows = own_rows()
    # As many replicas as rows, or one row, do not tell.
    if rows is None or (isinstance(rows, int) and rows in (0, 1, num_replicas())):
        return False
    behind = operations_behind(gradients, through_shapes=False)
    return any(OF_TAPE in op.name for op in behind) and next(_own_means(walk, gradients), None) is None


def _own_means(walk: ReplicaWalk, gradients: Sequence[Any]) -> Iterator[Any]:
    rows = own_rows()
    if rows is None or num_replicas() == 1:
        return
    size = rows if isinstance(rows, int) else None
    behind = {id(op): op for op in operations_behind(gradients, through_shapes=False)}
    for op in behind.values():
        is_mean = op.type in _QUOTIENTS and _is_over_rows(op, size)
        if is_mean and not _is_divided_by_hand(walk, op.inputs[0], size) and not _is_divided_as_told(op, behind):
            yield op


def _is_divided_as_told(quotient: Any, behind: Mapping[int, Any]) -> bool:
    """Whether the number of replicas divides a mean on its way back, before or behind it.

    Args:
        quotient: By the number of rows.
        behind: All operations on the way back, by their identities.
    """
    parts = noted_parts()
    if any(id(op) in parts for op in operations_behind([quotient.inputs[0]], through_shapes=False)):
        return True
    left, seen = [quotient], set[int]()
    while left:
        for op in [each for output in left.pop().outputs for each in output.consumers()]:
            if id(op) in behind and id(op) not in seen:
                if any(id(each.op) in parts for each in op.inputs):
                    return True
                seen.add(id(op))
                left.append(op)
    return False


def _is_divided_by_hand(walk: ReplicaWalk, slope: tf.Tensor, size: int | None) -> bool:
    """Whether what a way back begins with is a replica's part by its number of rows, or nobody knows what it is.

    A plain number alone is none: a half on two replicas, or a tenth on ten, is the weight of a loss.

    Args:
        walk: That of the strategy.
        slope: What comes back to a mean over own rows, the same for each.
        size: How many these are; None where it is open.
    """
    factors = _factors(walk, slope)
    if factors is None or 0 in factors or size == 0:
        return True
    if size is None or not any(each >= size and each % size == 0 for each in factors):
        return False
    # Over the rows of the batch, of which not all replicas need have as many.
    count = num_replicas()
    return abs(size / abs(math.prod(factors)) - size * count) <= count


def plain_factor(slope: tf.Tensor) -> float | None:
    """By which plain number the ones with which a way back begins were multiplied; None where it is none."""
    factors = _factors(None, slope)
    return None if factors is None else math.prod(factors)


def _factors(walk: ReplicaWalk | None, slope: tf.Tensor) -> list[float] | None:
    """The plain numbers by which the ones with which a way back begins were multiplied; None where nobody knows.

    Args:
        walk: Tells what is the same on all replicas, as the weight of a loss that is learned, and is left out; without
            one nobody knows.
        slope: What comes back to a mean.
    """
    op, number = slope.op, plain_number(slope)
    if number is not None:
        return [number]
    if op.type in _HAND_ON:
        inner = _factors(walk, op.inputs[0])
        return [-1.0, *inner] if op.type == "Neg" and inner is not None else inner
    if op.type == "Fill":
        return _factors(walk, op.inputs[1])
    if op.type == "OnesLike" or (walk is not None and _is_weight(walk, slope)):
        return []
    if op.type not in FACTORS:
        return None
    both = [_factors(walk, each) for each in op.inputs]
    if op.type in _QUOTIENTS and both[1] is not None:
        both[1] = [1 / each if each else 0.0 for each in both[1]]
    return None if None in both else [each for own in both if own is not None for each in own]


def _is_weight(walk: ReplicaWalk, number: Any) -> bool:
    """Whether it is the same on all replicas and no count of rows; what a tape has made is the way back itself."""
    if number.shape.rank != 0 or OF_TAPE in number.op.name or walk.may_differ(Frame(number.graph), number):
        return False
    behind = operations_behind([number], through_shapes=True)
    return not any(op.type in SIZES or is_collective(op) for op in behind)


def _is_over_rows(quotient: Any, size: int | None) -> bool:
    """Whether the divisor is how many rows a replica has, or numbers in its rows."""
    slope, divisor = quotient.inputs
    number = plain_number(divisor)
    while divisor.op.type in _COUNTS:
        divisor = divisor.op.inputs[0]
    is_counted = divisor.op.type in SIZES
    repeated = slope.op
    if repeated.type in REPEATS:
        # Each row's part of a mean. What is divided by anything else, such as a temperature, is a sum all the same.
        before, after = repeated.inputs[0].shape, repeated.outputs[0].shape
        is_repeated = bool(before.rank and after.rank) and before[0] == 1 and after[0] != 1
        if number is None:
            return is_repeated and is_counted
        return is_repeated and size not in (None, 0) and after[0] is not None and after[0] % size == number % size == 0
    # A sum that was divided by their number, as the script has counted them.
    if is_counted:
        return True
    counted = tf.get_static_value(divisor)
    # As many replicas as rows, or one row, say nothing. Nor does `tf.ones((3, 3)) / 3`, which no way back divides, nor
    # a number where there are several: all rows of one data set may be as many as this replica's of another.
    says = size not in (None, 0, 1, num_replicas()) and not has_several_own_rows()
    is_known = counted is not None and says and "gradient" in quotient.name
    return is_known and size in counted
