"""What does a loop by hand make of numbers of the batch that adding up the replicas does not make good?

Each replica has a part of a sum: what is added to such parts, or what they are multiplied by, may as well come before
the sum as after it. A root, a quotient, a threshold may not: the root of a sum is not the sum of roots. Nothing tries
such a loop on rows of one replica, but its graph shows it.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.training.check.thresholds import Asked, floating_inputs, goes_by, taken_apart

_CURVED = {
    *("Acos", "Asin", "Atan", "Cos", "Cosh", "Digamma", "Erf", "Exp", "Expm1", "Inv", "Lgamma", "Log", "Log1p"),
    *("LogSoftmax", "Pow", "Reciprocal", "Rsqrt", "Sigmoid", "Sin", "Sinh", "Softmax", "Softplus", "Softsign"),
    *("Sqrt", "Square", "SquaredDifference", "Tan", "Tanh"),
}
_QUOTIENTS = frozenset(("Div", "DivNoNan", "RealDiv", "Xdivy"))
_REPEATS = frozenset(("BroadcastTo", "Tile"))
_SUMS = frozenset(("AddV2", "Sub"))
_PRODUCTS = frozenset(("BatchMatMulV2", "MatMul", "Mul", "MulNoNan"))
_EXTREMES = frozenset(("ArgMax", "ArgMin", "Max", "Min", "Prod"))
_SHOWN = 5


@tf.autograph.experimental.do_not_convert
def refuse_numbers_apart(strategy: tf.distribute.Strategy, first: int, rows: Sequence[Any], results: Any) -> None:
    """Refuses what a loop by hand computes of sums over a replica's own rows and is no sum itself.

    Args:
        strategy: Whose `run` was just called. To be called in the same graph.
        first: How many operations the graph had before.
        rows: How many rows each replica of this process has: numbers, tensors, or None where nobody knows.
        results: What `run` returned.

    Raises:
        ModelError: A quotient, root, product or threshold of such sums, that nothing has brought together.
    """
    if any(each is None for each in rows):
        return
    sizes = {each if isinstance(each, int) else None for each in rows}
    names = taken_apart(strategy, first, results, sizes, functools.partial(_bends, sizes))
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise ModelError(
            "In a loop by hand what a replica computes of its rows must be a part of a sum: of several such sums no "
            "quotient, root, product or threshold may be taken before the replicas are brought together.\n"
            f"Received: {', '.join(map(repr, names[:_SHOWN]))}{more}, of what each replica computed of its own rows. "
            "Compute it of tfscale.gather_rows(x), which are the rows of all replicas, or of gradients that "
            "`tf.distribute.get_replica_context().all_reduce` has added up; or train by `fit` and a `train_step`, "
            "which tfscale divides as it must be."
        )


def _bends(sizes: Collection[int | None], op: Any) -> list[Asked]:
    """Of which numbers an operation is not linear, in a step for these numbers of rows."""
    if op.type in _CURVED:
        return floating_inputs(op)
    if op.type in _QUOTIENTS:
        return [Asked(op.inputs[1], 1)]
    if op.type in _REPEATS and op.outputs[0].shape.rank and op.outputs[0].shape[0] in sizes:
        # So the gradient of a product reaches the rows of which either side was made.
        return [Asked(op.inputs[0], 0)]
    if op.type in _EXTREMES:
        return [Asked(op.outputs[0], 0)]
    if op.type in _PRODUCTS or op.type in _SUMS:
        one, other = op.inputs
        if op.type in _SUMS:
            return [*_centre(sizes, op, 0), *_centre(sizes, op, 1)]
        found = [Asked(one, 0, other), Asked(other, 1, one)]
        if op.type == "MatMul" and one.shape.rank:
            # Over another axis than that of the rows, of which either side has one, it is of pairs of rows.
            found.append(Asked(one, 2, other, (one.shape[1 - op.get_attr("transpose_a")],)))
        return found
    return goes_by(op)


def _centre(sizes: Collection[int | None], op: Any, place: int) -> list[Asked]:
    """What is added to all rows, or taken from them, as their mean is; nothing that is a part of a sum is.

    A scalar that is added to the loss of each example is such a part.
    """
    number, rows = op.inputs[place], op.inputs[1 - place]
    if number.shape.rank is None or not rows.shape.rank or rows.shape[0] not in sizes:
        return []
    is_for_all = number.shape.rank < rows.shape.rank or (number.shape[0] == 1 and rows.shape[0] != 1)
    is_meant = number.shape.rank > 0 or op.type == "Sub"
    return [Asked(number, place, rows, lengths=())] if is_for_all and is_meant else []
