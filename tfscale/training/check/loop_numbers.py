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
from tfscale.replicas.graph_walk import QUOTIENTS, REPEATS
from tfscale.replicas.made import made_under
from tfscale.training.check.axes_of_order import axes_of_order
from tfscale.training.check.repeats import only_repeats
from tfscale.training.check.thresholds import Asked, floating_inputs, goes_by, taken_apart

_CURVED = {
    *("Acos", "Asin", "Atan", "Cos", "Cosh", "Digamma", "Erf", "Exp", "Expm1", "Inv", "Lgamma", "Log", "Log1p"),
    *("LogSoftmax", "Pow", "Reciprocal", "Rsqrt", "Sigmoid", "Sin", "Sinh", "Softmax", "Softplus", "Softsign"),
    *("Sqrt", "Square", "SquaredDifference", "Tan", "Tanh"),
}
_GATHERS = frozenset(("GatherNd", "GatherV2"))
_SUMS = frozenset(("AddV2", "Sub"))
_PRODUCTS = frozenset(("BatchMatMulV2", "MatMul", "Mul", "MulNoNan"))
_EXTREMES = frozenset(("ArgMax", "ArgMin", "Max", "Min", "Prod"))
_SHOWN = 5


@tf.autograph.experimental.do_not_convert
def refuse_numbers_apart(
    strategy: tf.distribute.Strategy, first: int, rows: Sequence[Sequence[Any]], results: Any
) -> None:
    """Refuses what a loop by hand computes of sums over a replica's own rows and is no sum itself.

    Args:
        strategy: Whose `run` was just called. To be called in the same graph.
        first: How many operations the graph had before.
        rows: How many rows each replica of this process has, of each batch of another size: numbers or tensors; nothing
            where nobody knows.
        results: What `run` returned.

    Raises:
        ModelError: A quotient, root, product or threshold of such sums, that nothing has brought together.
    """
    if not all(rows):
        return
    known = [[each if isinstance(each, int) else None for each in own] for own in rows]
    sizes = {each for own in known for each in own}
    alone = [own[0] for own in known] if all(len(own) == 1 for own in known) else []
    weights = {tuple(each.shape) for each in made_under(strategy).variables if each.trainable}
    bends = functools.partial(_bends, sizes, weights)
    names = taken_apart(
        strategy, first, results, sizes, bends, counts_values=True, keeps=True, rows=alone, of_several=not alone
    )
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


def _bends(sizes: Collection[int | None], weights: Collection[tuple[int | None, ...]], op: Any) -> list[Asked]:
    """Of which numbers an operation is not linear, in a step for these numbers of rows and shapes of weights."""
    if along := axes_of_order(op):
        return [Asked(op.inputs[0], 0, axis=axis) for axis in along if axis < (op.inputs[0].shape.rank or 0)]
    if op.type in _CURVED:
        return floating_inputs(op)
    if op.type == "Einsum" and len(op.inputs) == 2:
        return _pairs(op.inputs[0], op.inputs[1], *_axes_in_both(op))
    if op.type in QUOTIENTS:
        return [Asked(op.inputs[1], 1)]
    is_repeated = op.type in REPEATS or (op.type in _GATHERS and op.inputs[0].dtype.is_floating)
    if is_repeated and op.outputs[0].shape.rank and op.outputs[0].shape[0] in sizes:
        # So the gradient of a product reaches the rows of which either side was made.
        return [Asked(op.inputs[0], 0)]
    if op.type in _EXTREMES:
        return [] if only_repeats(op) else [Asked(op.outputs[0], 0)]
    if op.type in _PRODUCTS or op.type in _SUMS:
        one, other = op.inputs
        if op.type in _SUMS:
            pairs = (Asked(one, 0, other, lengths=()), Asked(other, 1, one, lengths=()))
            return [each for each in pairs if _is_centre(sizes, weights, op, each)]
        found = [Asked(one, 0, other), Asked(other, 1, one)]
        if op.type == "MatMul" and one.shape.rank:
            is_turned = op.get_attr("transpose_a")
            found += _pairs(one, other, (1 - is_turned,), (0 + is_turned,))
        return found
    return goes_by(op)


def _pairs(one: Any, other: Any, met: tuple[int, ...], kept: tuple[int, ...]) -> list[Asked]:
    """Whether a product is of pairs of rows.

    It is where both sides have rows and none of the axes that meet is that of the rows; and on the way back from there,
    where one side has the rows on an axis that meets as well as on one that does not.

    Args:
        one: The first side.
        other: The second one.
        met: The axes of the first side that it has in common with the other one.
        kept: The rest of them.
    """

    def lengths(axes: tuple[int, ...]) -> tuple[int | None, ...]:
        return tuple(one.shape[axis] for axis in axes)

    found = [Asked(one, 2, other, lengths(met), met)]
    if len(met) == len(kept) == 1:
        found.append(Asked(other, 3, lengths=lengths((*met, *kept)), axis=0))
    return found


def _axes_in_both(op: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes that the first side of a product has in common with the other one, and the rest."""
    one, other = op.get_attr("equation").decode().partition("->")[0].replace(" ", "").split(",")
    if "." in one:
        return tuple(range(op.inputs[0].shape.rank)), ()
    met = tuple(place for place, letter in enumerate(one) if letter in other)
    return met, tuple(place for place, letter in enumerate(one) if letter not in other)


def _is_centre(
    sizes: Collection[int | None], weights: Collection[tuple[int | None, ...]], op: Any, asked: Asked
) -> bool:
    """Whether it is added to all rows, or taken from them, as their mean is; nothing that is a part of a sum is.

    A scalar that is added to the loss of each example is such a part. Gradients, which have the shape of a weight, may
    as well be centred before they are added up as after it.
    """
    number, rows = asked.number.shape, asked.beside.shape
    if number.rank is None or not rows.rank or rows[0] not in sizes or tuple(rows) in weights:
        return False
    is_for_all = number.rank < rows.rank or (number[0] == 1 and rows[0] != 1)
    return bool(is_for_all and (number.rank > 0 or op.type == "Sub"))
