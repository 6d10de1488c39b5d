"""Is the loss of a loop by hand the mean over a replica's own rows, which no replica has divided further?

The optimizer adds up what the replicas give it: of N such means that is N times the gradient of one device, in silence.
The way back from a mean begins with the same number for every row, over how many rows there are; what was divided by
the number of replicas as well has a part of one there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.replicas.graph_walk import SAME_VALUES, operations_behind, plain_number
from tfscale.replicas.replica_count import noted_parts, own_rows
from tfscale.replicas.share import num_replicas

_QUOTIENTS = frozenset(("Div", "DivNoNan", "RealDiv"))
_PRODUCTS = frozenset(("Mul", "MulNoNan"))
_REPEATS = frozenset(("BroadcastTo", "Tile"))
_HAND_ON = SAME_VALUES | _REPEATS | {"Neg"}
# From the shape of something to how many rows it has.
_COUNTS = frozenset(("Cast", "GatherV2", "Identity", "Prod", "Squeeze", "StridedSlice"))
_SHAPES = frozenset(("Shape", "Size"))
# So TensorFlow names what a tape makes.
OF_TAPE = "gradient_tape/"


def refuse_own_means(gradients: Sequence[Any]) -> None:
    """Refuses gradients of a mean over the rows of one replica. To be called by a replica, in the graph of its loop.

    Args:
        gradients: Tensors of a graph, as an optimizer gets them.

    Raises:
        ModelError: When a loss is divided by the replica's own rows, and not among the replicas.
    """
    mean = next(_own_means(gradients), None)
    if mean is None:
        return
    raise ModelError(
        "In a function of `strategy.run` a replica's loss is its part of a sum, which the optimizer adds up; of means "
        "over each replica's own rows the sum is several times the gradient of one device.\n"
        f"Received: gradients of a mean over own rows ({mean.name!r}). Divide the loss by "
        "`strategy.num_replicas_in_sync`, which counts each replica's rows there, or write "
        "`tf.nn.compute_average_loss(loss_of_each_example)`."
    )


def are_of_parts(gradients: Sequence[Any]) -> bool:
    """Whether gradients are those of a part of a sum, and of no mean over the rows of one replica.

    Args:
        gradients: Tensors of a graph, in a loop by hand.
    """
    rows = own_rows()
    # As many replicas as rows, or one row, do not tell.
    if rows is None or (isinstance(rows, int) and rows in (0, 1, num_replicas())):
        return False
    behind = operations_behind(gradients, through_shapes=False)
    return any(OF_TAPE in op.name for op in behind) and next(_own_means(gradients), None) is None


def _own_means(gradients: Sequence[Any]) -> Iterator[Any]:
    rows = own_rows()
    if rows is None:
        return
    parts = noted_parts()
    behind = list(operations_behind(gradients, through_shapes=False))
    if any(id(op) in parts for op in behind):
        # Of several losses some are divided; which, the sum of their gradients does not tell.
        return
    size = rows if isinstance(rows, int) else None
    for op in behind:
        if op.type in _QUOTIENTS and _is_over_rows(op, size) and not _is_divided_by_hand(op.inputs[0], size):
            yield op


def _is_divided_by_hand(slope: tf.Tensor, size: int | None) -> bool:
    """Whether what a way back begins with is a replica's part by plain numbers, or nobody knows what it is.

    Args:
        slope: What comes back to a mean over own rows, the same for each.
        size: How many these are; None where it is open.
    """
    factor, count = plain_factor(slope), num_replicas()
    if factor is None or factor == 0:
        return True
    # Over the rows of the batch, of which not all replicas need have as many.
    rows = 1 if size is None else size
    return abs(rows / abs(factor) - rows * count) <= (1e-3 if size is None else count)


def plain_factor(slope: tf.Tensor) -> float | None:
    """By which plain number the ones with which a way back begins were multiplied; None where it is none."""
    factor = 1.0
    while True:
        op = slope.op
        if op.type in _HAND_ON:
            factor, slope = (-factor if op.type == "Neg" else factor), op.inputs[0]
        elif op.type == "Fill":
            slope = op.inputs[1]
        elif op.type == "OnesLike":
            return factor
        elif op.type in _QUOTIENTS and (number := plain_number(op.inputs[1])):
            factor, slope = factor / number, op.inputs[0]
        elif op.type in _PRODUCTS and (numbers := list(map(plain_number, op.inputs))) != [None, None]:
            place = 0 if numbers[1] is None else 1
            factor, slope = factor * (numbers[place] or 0.0), op.inputs[1 - place]
        else:
            number = plain_number(slope)
            return None if number is None else factor * number


def _is_over_rows(quotient: Any, size: int | None) -> bool:
    """Whether the divisor is how many rows a replica has, or numbers in its rows."""
    slope, divisor = quotient.inputs
    number = plain_number(divisor)
    while divisor.op.type in _COUNTS:
        divisor = divisor.op.inputs[0]
    is_counted = divisor.op.type in _SHAPES
    repeated = slope.op
    if repeated.type in _REPEATS:
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
    # As many replicas as rows, or one row, say nothing. Nor does `tf.ones((3, 3)) / 3`, which no way back divides.
    is_known = counted is not None and size not in (None, 0, 1, num_replicas()) and "gradient" in quotient.name
    return is_known and size in counted
