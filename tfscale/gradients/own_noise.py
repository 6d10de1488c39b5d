"""Does each replica add to its gradients noise that it draws by itself?

Of N such draws the sum is not the noise that one device adds: in a mean over the replicas it is about the root of N
times smaller, in a sum as much larger. Noise that is in the losses, as dropout is, comes with its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfscale.exact.silence import DRAWS_FROM_STATE
from tfscale.replicas.graph_walk import SAME_VALUES, operations_behind
from tfscale.replicas.marks import NOISE, SEED_OF_REPLICA, mark_noise, marked
from tfscale.replicas.replica_walk import Frame, ReplicaWalk

_SUMS = frozenset(("Add", "AddN", "AddV2", "Sub"))
_PRODUCTS = frozenset(("Div", "DivNoNan", "Mul", "MulNoNan", "RealDiv"))


def note_own_noise(gradients: Sequence[Any]) -> None:
    """Marks what is drawn and added to gradients that replicas are about to add up. To be called by each, in a graph.

    Args:
        gradients: As they were given, or times single numbers; None or sparse for some.
    """
    for gradient in gradients:
        if tf.is_symbolic_tensor(gradient):
            mark_noise(list(_own_noise(gradient)))


def own_noise(strategy: tf.distribute.Strategy, first: int) -> list[str]:
    """Names of the operations of which `note_own_noise` has marked what they draw, in the graph and its functions.

    Args:
        strategy: That of the step. To be called in the graph in which its `run` was.
        first: How many operations the graph had before the step.
    """
    graph = tf.compat.v1.get_default_graph()
    return sorted(
        {
            op.name
            for op, frame, _ in ReplicaWalk(strategy).operations(Frame(graph), first)
            if not marked(frame.graph, NOISE).isdisjoint(map(id, op.outputs))
        }
    )


def _own_noise(gradient: Any) -> Iterator[Any]:
    drawn: list[Any] = []
    others: list[Any] = []
    for term in _terms(gradient):
        (drawn if _draws_by_itself(term.op) else others).append(term)
    if not drawn:
        return
    # What the losses have drawn, too, is noise of the rows: a weight that is drawn, and the penalty for it.
    in_losses = {id(op) for op in operations_behind(others, through_shapes=False)}
    yield from (term for term in drawn if id(term.op) not in in_losses)


def _terms(gradient: Any) -> Iterator[Any]:
    """What is added up to a gradient, times single numbers."""
    left = [gradient]
    while left:
        tensor = left.pop()
        op = tensor.op
        factors = [each for each in op.inputs if each.shape.rank != 0] if op.type in _PRODUCTS else []
        if op.type in _SUMS:
            left += op.inputs
        elif op.type in SAME_VALUES or op.type == "Neg":
            left.append(op.inputs[0])
        elif len(factors) == 1:
            left += factors
        else:
            yield tensor


def _draws_by_itself(op: Any) -> bool:
    """Whether an operation draws what another replica does not."""
    if op.type in DRAWS_FROM_STATE:
        return True
    if not op.type.startswith("Stateless"):
        return False
    seeds = marked(op.graph, SEED_OF_REPLICA)
    behind = operations_behind(list(op.inputs), through_shapes=False)
    return any(id(output) in seeds for each in behind for output in each.outputs)
