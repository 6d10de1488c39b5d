"""Does a step go by whether a number of the batch lies beyond a threshold?

`tf.clip_by_global_norm(gradients, 20.0)`, `tf.where(loss > 40.0, ...)`, `tf.maximum(mean_divergence, 3.0)`: as long as
all numbers lie on one side, each replica may as well take that of its own rows, and so may the first batch. A later
one with an outlier shows it, or none that is looked at. No number tells that in advance, but the graph does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from tfscale.replicas.replica_walk import LOOPS, Frame, ReplicaWalk, only_reads

# Linear on either side of something.
_BENT = {
    *("Abs", "Ceil", "ClipByValue", "Elu", "Floor", "LeakyRelu", "Maximum", "Minimum"),
    *("Relu", "Relu6", "Rint", "Round", "Selu", "Sign"),
}
_CHOICES = frozenset(("Select", "SelectV2"))
_BRANCHES = frozenset(("If", "StatelessIf", "Case"))
# In a branch with nothing else, nothing is computed.
_SAYS = frozenset(("Assert", "PrintV2", "Const", "Identity", "NoOp", "Placeholder", "StringFormat"))


def decided_apart(
    strategy: tf.distribute.Strategy, first: int, results: Any, sizes: Collection[int | None]
) -> list[str]:
    """Names of the operations that go by a number, of a replica's own rows, that is not one of each row.

    Loops are left out: in those over rows, each number is one row's. So is what nothing is made of, such as the form
    for one row that tf.vectorized_map leaves behind.

    Args:
        strategy: That of the step. To be called in the graph in which its `run` was.
        first: How many operations the graph had before the step.
        results: What its `run` returned.
        sizes: For how many rows it was traced, by each replica; None for any number.
    """
    walk = ReplicaWalk(strategy)
    asked = _asked(walk, Frame(tf.compat.v1.get_default_graph()), _tensors(strategy, results), first)
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for name, _, tensor in asked:
        shapes.setdefault(_without_replica(name), []).append(tuple(tensor.shape))
    return sorted(
        {
            name
            for name, frame, tensor in asked
            if not may_have_rows(shapes[_without_replica(name)], sizes) and walk.may_differ_by_rows(frame, tensor)
        }
    )


def may_have_rows(shapes: Sequence[tuple[int, ...]], sizes: Collection[int | None]) -> bool:
    """Whether one axis of a tensor may be that of the rows, as far as its known shapes tell.

    Args:
        shapes: That it has on each replica.
        sizes: For how many rows the replicas were traced; None for any number.

    Example:
        >>> from tfscale.training.check.thresholds import may_have_rows
        >>> may_have_rows([(8,)], {None}), may_have_rows([(3, 8), (2, 8)], {3, 2}), may_have_rows([(12,)] * 2, {3, 2})
        (False, True, False)
        >>> may_have_rows([(6, 8)], {3}), may_have_rows([(8,)], {3}), may_have_rows([()], {1})
        (True, False, False)
    """
    if None in sizes:
        return False
    if len(sizes) > 1 and len(shapes) > 1:
        return len(set(shapes)) > 1
    # Two rows or one after the other, as of pairs or of tokens.
    return any(length % size == 0 for shape in shapes for length in shape for size in sizes if size)


def _tensors(strategy: tf.distribute.Strategy, results: Any) -> list[Any]:
    flat = [local for each in tf.nest.flatten(results) for local in strategy.experimental_local_results(each)]
    return [each for each in flat if tf.is_symbolic_tensor(each)]


def _asked(walk: ReplicaWalk, frame: Frame, results: Sequence[Any], first: int = 0) -> list[tuple[str, Frame, Any]]:
    """(name of an operation, the frame it is in, a number by which it goes)."""
    operations = frame.graph.get_operations()[first:]
    used = _used(operations, results)
    found = []
    for op in operations:
        if op.name not in used:
            continue
        found += [(op.name, frame, tensor) for tensor in _goes_by(op) if _is_of_no_row(tensor)]
        if op.type in LOOPS:
            continue
        bodies = walk.bodies(op, frame)
        if op.type in _BRANCHES and not all(map(_only_says, bodies)):
            found.append((op.name, frame, op.inputs[0]))
        for body in bodies:
            found += _asked(walk, body, body.graph.outputs)
    return found


def _used(operations: Sequence[Any], results: Sequence[Any]) -> set[str]:
    """Names of those of which results are made, or what has an effect."""
    left = [each.op for each in results]
    left += [op for op in operations if op.op_def.is_stateful and not only_reads(op)]
    used = set()
    while left:
        op = left.pop()
        if op.name not in used:
            used.add(op.name)
            left += [each.op for each in op.inputs]
            left += op.control_inputs
    return used


def _goes_by(op: Any) -> list[Any]:
    if op.type in _BENT:
        return [each for each in op.inputs if each.dtype.is_floating]
    if op.type in _CHOICES or (op.type == "Cast" and op.inputs[0].dtype.is_bool):
        return [op.inputs[0]]
    return []


def _is_of_no_row(tensor: Any) -> bool:
    """Whether no axis has an open length, as that of the rows has in a trace for any number of them."""
    return tensor.shape.rank is not None and tensor.shape.is_fully_defined()


def _without_replica(name: str) -> str:
    return re.sub(r"(^|/)replica_\d+/", r"\1", name)


def _only_says(frame: Frame) -> bool:
    return all(op.type in _SAYS for op in frame.graph.get_operations())
