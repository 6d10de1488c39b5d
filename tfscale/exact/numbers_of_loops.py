"""What is a number of one replica of a loop by hand: its part of a sum, a mean over its rows, or the same on all?

The graph tells it: sums over rows, and what is divided among the replicas, are parts; means over rows, and sums over
rows that are divided by how many these are, are means.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.replicas.count_notes import noted_counts, noted_parts
from tfscale.replicas.divided import FACTORS, divides_by_replicas, multiplies_by_replicas
from tfscale.replicas.graph_walk import SAME_VALUES, SIZES, SUMS, operations_behind, plain_number
from tfscale.replicas.marks import ALIKE_ON_ALL, MEAN_OF_ROWS, PART_BESIDE_OTHERS, PART_OF_SUM, mark_number, marked
from tfscale.replicas.replica_batch import local_replicas
from tfscale.replicas.replica_count import own_rows
from tfscale.replicas.replica_walk import Frame, ReplicaWalk

# From the shape of something to how many rows it has.
_COUNTS = SAME_VALUES | {"GatherV2", "Mul", "Prod", "StridedSlice"}


class Kind(enum.Enum):
    """What a replica's number is."""

    PART = "a part of a sum"
    MEAN = "a mean over its rows"
    ALIKE = "the same on all replicas"


_MARKS: dict[Kind | None, str] = {Kind.PART: PART_OF_SUM, Kind.MEAN: MEAN_OF_ROWS, Kind.ALIKE: ALIKE_ON_ALL}


def kind_of_number(number: Any) -> Kind | None:
    """What a number of a replica is; None if nobody knows, or if it is several things at once.

    Args:
        number: A tensor. To be asked by the replica, in the graph of its loop.
    """
    kinds = _kinds_of(_walk(), number)
    return kinds.pop() if len(kinds) == 1 else None


def is_part_beside_others(number: Any) -> bool:
    """Whether a number is a replica's part of a sum, and beside it something that nobody has divided.

    Args:
        number: As of `kind_of_number`.
    """
    return _has_others(_kinds_of(_walk(), number))


def mark_numbers(values: Any) -> None:
    """Marks, in a graph, what are a replica's parts of sums or means over its rows. To be called by it, in its loop.

    Args:
        values: Nested structure of what a function of the loop returns.
    """
    if own_rows() is None:
        return
    walk, are_several = _walk(), local_replicas(tf.distribute.get_strategy()).total > 1
    for leaf in tf.nest.flatten(values):
        if tf.is_symbolic_tensor(leaf) and leaf.shape.rank == 0 and leaf.dtype.is_floating:
            kinds = _kinds_of(walk, leaf)
            if _has_others(kinds):
                mark_number(leaf, PART_BESIDE_OTHERS)
            elif kinds in ({Kind.PART}, {Kind.MEAN}) or (kinds == {Kind.ALIKE} and are_several and not _is_plain(leaf)):
                mark_number(leaf, _MARKS[kinds.pop()])


def refuse_parts_beside_others(strategy: tf.distribute.Strategy, results: Any) -> None:
    """Refuses what a loop by hand returns when it is neither a part of a sum, nor a mean, nor the same on all replicas.

    Args:
        strategy: Whose `run` was just called. To be called in the same graph.
        results: What it returned, of which `mark_numbers` has been told.

    Raises:
        ModelError: When one is a part of a sum, and beside it what is the same on all replicas or a mean.
    """
    for leaf in [own for each in tf.nest.flatten(results) for own in strategy.experimental_local_results(each)]:
        if tf.is_symbolic_tensor(leaf) and id(leaf) in marked(leaf.graph, PART_BESIDE_OTHERS):
            raise ModelError(
                "In a function of `strategy.run` a replica's loss is its part of a sum, in which a mean over own rows, "
                "or what is the same on all replicas, counts several times.\n"
                f"Received: {leaf.name!r}, which the function returns: a part, and a number that nobody has divided. "
                "Divide that by `strategy.num_replicas_in_sync`, or return it by itself."
            )


def _is_plain(number: tf.Tensor) -> bool:
    """Whether nothing is read for a number: a plain one may count the replicas."""
    return not any(op.type == "ReadVariableOp" for op in operations_behind([number], through_shapes=False))


def _has_others(kinds: set[Kind | None]) -> bool:
    """Whether one of the terms of a number is a part, and another one known to be none."""
    return Kind.PART in kinds and None not in kinds and len(kinds) > 1


def _walk() -> ReplicaWalk:
    return ReplicaWalk(tf.distribute.get_strategy())


def _kinds_of(walk: ReplicaWalk, number: Any) -> set[Kind | None]:
    terms = [(term, times) for term, times in _terms(walk, number) if plain_number(term) != 0]
    return {_kind_of_term(walk, term, times) for term, times in terms}


def _terms(walk: ReplicaWalk, number: Any) -> Iterator[tuple[Any, int]]:
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
        elif (inner := _multiplied(walk, op)) is not None:
            left.append((inner, times + multiplies_by_replicas(op) - divides_by_replicas(op)))
        else:
            yield tensor, times


def _multiplied(walk: ReplicaWalk, op: Any) -> Any:
    """What an operation multiplies by something else than the count of own rows; None if it does not."""
    if op.type not in FACTORS or _counts_rows(op.inputs[1]):
        return None
    if not op.type.startswith("Mul"):
        return op.inputs[0]
    # A factor is the same on all replicas, or made of how many there are.
    others = [each for each in op.inputs if not _is_factor(walk, each)]
    return others[0] if len(others) == 1 else op.inputs[0] if not others else None


def _is_factor(walk: ReplicaWalk, tensor: Any) -> bool:
    return id(tensor.op) in noted_parts() or _is_alike(walk, tensor)


def _kind_of_term(walk: ReplicaWalk, term: Any, times: int) -> Kind | None:
    """That of a term which the number of replicas multiplies so often, or divides if it is less than zero."""
    kind = _kind_of_itself(walk, term)
    if times == 0 or kind is None:
        return kind
    if times < 0:
        # One that is divided further is a part of something smaller.
        return Kind.PART
    return Kind.MEAN if kind is Kind.PART and times == 1 else None


def _kind_of_itself(walk: ReplicaWalk, term: Any) -> Kind | None:
    if not tf.is_symbolic_tensor(term):
        return Kind.PART if _counts_rows(term) else Kind.ALIKE
    op = term.op
    if id(op) in noted_counts():
        # To one device it is one replica, and nothing tells what becomes of it.
        return None
    if id(op) in noted_parts() or _counts_rows(term) or (op.type == "Sum" and _has_own_rows(walk, op.inputs[0])):
        return Kind.PART
    if _is_alike(walk, term):
        return Kind.ALIKE
    is_mean = op.type == "Mean" or (op.type in FACTORS and _summed(op.inputs[0]) and _counts_rows(op.inputs[1]))
    return Kind.MEAN if is_mean else None


def _has_own_rows(walk: ReplicaWalk, tensor: Any) -> bool:
    """Whether what is added up is of the rows: of constants, as many as these are."""
    if not _is_alike(walk, tensor):
        return True
    reads = any(op.type == "ReadVariableOp" for op in operations_behind([tensor], through_shapes=False))
    return not reads and bool(tensor.shape.rank) and tensor.shape[0] == own_rows()


def _summed(tensor: Any) -> bool:
    while tensor.op.type in SAME_VALUES:
        tensor = tensor.op.inputs[0]
    return bool(tensor.op.type == "Sum")


def _is_alike(walk: ReplicaWalk, tensor: Any) -> bool:
    return not walk.may_differ(Frame(tensor.graph), tensor)


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
    return not met.isdisjoint(SIZES) and met <= _COUNTS | SIZES | {"Const"}


def _is_known_shape(op: Any) -> bool:
    """Whether it is the shape of something that has this replica's rows, which TensorFlow knows as constants."""
    lengths = tf.get_static_value(op.outputs[0]) if op.type == "Const" else None
    if lengths is None or lengths.ndim != 1 or lengths.size == 0 or lengths.dtype.kind != "i":
        return False
    return bool(lengths[0] == own_rows())
