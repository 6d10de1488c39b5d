"""How does a metric count one number of a batch that a loop by hand gives it on each replica?

One device counts it once. What the replicas have may be parts of it, which are added up; a mean over their own rows,
which counts by how many these are; or the number itself. The graph tells which.
"""

from __future__ import annotations

import enum
import logging
import weakref
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.replicas.divided import FACTORS, divides_by_replicas, multiplies_by_replicas
from tfscale.replicas.graph_walk import SAME_VALUES, SUMS, operations_behind, plain_number
from tfscale.replicas.marks import mark_number
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_count import noted_counts, noted_parts, own_rows, part_asked_for
from tfscale.replicas.replica_walk import Frame, ReplicaWalk

_log = logging.getLogger(__name__)

_SHAPES = frozenset(("Shape", "Size"))
# From the shape of something to how many rows it has.
_COUNTS = SAME_VALUES | {"GatherV2", "Mul", "Prod", "StridedSlice"}
# Metrics of which it was said once that they are given numbers of replicas.
WARNED = Fact[weakref.WeakSet[keras.metrics.Metric]](ReplicaGroup, "warned_of", lambda each: [one.name for one in each])


class Kind(enum.Enum):
    """What a replica's number is."""

    PART = "a part of a sum"
    MEAN = "a mean over its rows"
    ALIKE = "the same on all replicas"


def number_as_counted(metric: keras.metrics.Metric, value: Any, weight: Any) -> tuple[Any, Any]:
    """A number and its weight, with which the states of all replicas together are those of one device.

    To be called by a replica, in a loop by hand. One that runs eagerly is warned of, once: nothing tells there what the
    number is made of.

    Args:
        metric: That is to count it, a sum or a mean.
        value: A number.
        weight: That was given with it, a number or None.

    Raises:
        ModelError: When nobody knows what the number is.
    """
    part = part_asked_for()
    number = tf.convert_to_tensor(value)
    if part is None or tf.executing_eagerly() or _may_be_either(number):
        _warn_of(metric)
        return value, weight
    kind = kind_of_number(number)
    weight_kind = Kind.ALIKE if weight is None else kind_of_number(tf.convert_to_tensor(weight))
    if kind is None or weight_kind in (None, Kind.MEAN):
        raise ModelError(
            "What a metric counts in a loop by hand must be numbers of the examples, or one of the batch of which the "
            "graph tells what it is: a replica's part of a sum, or the mean over its rows.\n"
            f"Received: metric {metric.name!r}, which is given one number by each replica "
            f"({getattr(number, 'name', number)!r}). Give it a number for each example, or update it with what "
            '`strategy.reduce("SUM", ...)` returns.'
        )
    own = part(metric.dtype)
    number = tf.cast(number, metric.dtype)
    # A replica without rows has no part, and no mean.
    number = tf.math.divide_no_nan(number, own) if kind is Kind.PART else tf.where(own > 0, number, 0)
    if weight is None:
        return number, own
    return number, weight if weight_kind is Kind.PART else own * tf.cast(weight, metric.dtype)


def _warn_of(metric: keras.metrics.Metric) -> None:
    warned = WARNED.ensure(tf.distribute.get_strategy(), weakref.WeakSet())
    if metric in warned:
        return
    warned.add(metric)
    _log.warning(
        "metric %r is given one number by each replica in `strategy.run`, and logs their mean, which one device does "
        "not: a part of a sum comes out too small. Give it a number for each example, or update it with what "
        '`strategy.reduce("SUM", ...)` returns',
        metric.name,
    )


def kind_of_number(number: Any) -> Kind | None:
    """What a number of a replica is; None if nobody knows, or if it is several things at once.

    Args:
        number: A tensor. To be asked by the replica, in the graph of its loop.
    """
    kinds = _kinds_of(number)
    return kinds.pop() if len(kinds) == 1 else None


def is_part_beside_whole(number: Any) -> bool:
    """Whether a number is a replica's part of a sum, and something that is the same on all and nobody has divided.

    Args:
        number: As of `kind_of_number`.
    """
    return _kinds_of(number) == {Kind.PART, Kind.ALIKE}


def _kinds_of(number: Any) -> set[Kind | None]:
    terms = [(term, times) for term, times in _terms(number) if plain_number(term) != 0]
    return {_kind_of_term(term, times) for term, times in terms}


def mark_numbers(values: Any) -> None:
    """Marks, in a graph, what are a replica's parts of sums or means over its rows. To be called by it, in its loop.

    Args:
        values: Nested structure of what a function of the loop returns.

    Raises:
        ModelError: When one is a part of a sum beside what is the same on all replicas.
    """
    if own_rows() is None:
        return
    for leaf in tf.nest.flatten(values):
        if tf.is_symbolic_tensor(leaf) and leaf.shape.rank == 0 and leaf.dtype.is_floating:
            if is_part_beside_whole(leaf):
                raise ModelError(
                    "In a function of `strategy.run` a replica's loss is its part of a sum, in which what is the same "
                    "on all replicas counts several times.\n"
                    f"Received: {leaf.name!r}, which the function returns: a part, and a number that nobody has "
                    "divided. Divide that by `strategy.num_replicas_in_sync`, or return it by itself."
                )
            kind = kind_of_number(leaf)
            if kind in (Kind.PART, Kind.MEAN):
                mark_number(leaf, is_mean=kind is Kind.MEAN)


def _may_be_either(number: tf.Tensor) -> bool:
    """Whether it is one where there is one row: how many rows there are, or a number."""
    return plain_number(number) == 1 == own_rows()


def _terms(number: Any) -> Iterator[tuple[Any, int]]:
    """Of what a number is a sum, by whatever that is multiplied; and how often the number of replicas multiplies it."""
    left = [(number, 0)]
    while left:
        tensor, times = left.pop()
        op = tensor.op if tf.is_symbolic_tensor(tensor) else None
        if op is None or id(op) in noted_parts():
            yield tensor, times
        elif op.type in SAME_VALUES or op.type == "Neg":
            left.append((op.inputs[0], times))
        elif op.type in SUMS:
            left += [(each, times) for each in op.inputs]
        elif (inner := _multiplied(op)) is not None:
            left.append((inner, times + multiplies_by_replicas(op) - divides_by_replicas(op)))
        else:
            yield tensor, times


def _multiplied(op: Any) -> Any:
    """What an operation multiplies by something else than the count of own rows; None if it does not."""
    if op.type not in FACTORS or _counts_rows(op.inputs[1]):
        return None
    if not op.type.startswith("Mul"):
        return op.inputs[0]
    # A factor is the same on all replicas, or made of how many there are.
    others = [each for each in op.inputs if not _is_factor(each)]
    return others[0] if len(others) == 1 else op.inputs[0] if not others else None


def _is_factor(tensor: Any) -> bool:
    return id(tensor.op) in noted_parts() or _is_alike(tensor)


def _kind_of_term(term: Any, times: int) -> Kind | None:
    """That of a term which the number of replicas multiplies so often, or divides if it is less than zero."""
    kind = _kind_of_itself(term)
    if times == 0 or kind is None:
        return kind
    if times < 0:
        # One that is divided further is a part of something smaller.
        return Kind.PART
    return Kind.MEAN if kind is Kind.PART and times == 1 else None


def _kind_of_itself(term: Any) -> Kind | None:
    if not tf.is_symbolic_tensor(term):
        return Kind.PART if _counts_rows(term) else Kind.ALIKE
    op = term.op
    if id(op) in noted_counts():
        # To one device it is one replica, and nothing tells what becomes of it.
        return None
    if id(op) in noted_parts() or _counts_rows(term) or (op.type == "Sum" and _has_own_rows(op.inputs[0])):
        return Kind.PART
    if _is_alike(term):
        return Kind.ALIKE
    is_mean = op.type == "Mean" or (op.type in FACTORS and _summed(op.inputs[0]) and _counts_rows(op.inputs[1]))
    return Kind.MEAN if is_mean else None


def _has_own_rows(tensor: Any) -> bool:
    """Whether what is added up is of the rows: of constants, as many as these are."""
    if not _is_alike(tensor):
        return True
    reads = any(op.type == "ReadVariableOp" for op in operations_behind([tensor], through_shapes=False))
    return not reads and bool(tensor.shape.rank) and tensor.shape[0] == own_rows()


def _summed(tensor: Any) -> bool:
    while tensor.op.type in SAME_VALUES:
        tensor = tensor.op.inputs[0]
    return bool(tensor.op.type == "Sum")


def _is_alike(tensor: Any) -> bool:
    return not ReplicaWalk(tf.distribute.get_strategy()).may_differ(Frame(tensor.graph), tensor)


def _counts_rows(tensor: Any) -> bool:
    """Whether it is how many rows a replica has, or entries in them, by a shape or as the number that this is."""
    rows, number = own_rows(), plain_number(tensor)
    if number is not None:
        return isinstance(rows, int) and rows > 1 and number == rows
    if not tf.is_symbolic_tensor(tensor):
        return False
    left, met = [tensor.op], set[str]()
    while left:
        op = left.pop()
        met.add("Shape" if _is_known_shape(op) else op.type)
        left += [each.op for each in op.inputs] if op.type in _COUNTS else []
    return not met.isdisjoint(_SHAPES) and met <= _COUNTS | _SHAPES | {"Const"}


def _is_known_shape(op: Any) -> bool:
    """Whether it is the shape of something that has this replica's rows, which TensorFlow knows as constants."""
    lengths = tf.get_static_value(op.outputs[0]) if op.type == "Const" else None
    is_shape = lengths is not None and lengths.ndim == 1 and lengths.size > 0 and lengths.dtype.kind == "i"
    return bool(is_shape and lengths is not None and lengths[0] == own_rows())
