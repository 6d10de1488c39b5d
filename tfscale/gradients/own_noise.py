"""Does each replica add to its gradients noise that it draws by itself?

Of N such draws the sum is not the noise that one device adds: in a mean over the replicas it is about the root of N
times smaller, in a sum as much larger. Noise that is in the losses, as dropout is, comes with its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfscale.exact.silence import DRAWS_FROM_STATE
from tfscale.replicas.divided import FACTORS
from tfscale.replicas.graph_walk import SAME_VALUES, SUMS, operations_behind
from tfscale.replicas.marks import NOISE, SEED_OF_REPLICA, mark_noise, marked
from tfscale.replicas.replica_walk import Frame, ReplicaWalk


def note_own_noise(gradients: Sequence[Any]) -> None:
    """Marks what is drawn and added to gradients that replicas are about to add up. To be called by each, in a graph.

    Args:
        gradients: As they were given, or times single numbers; None or sparse for some.
    """
    for gradient in gradients:
        if tf.is_symbolic_tensor(gradient):
            mark_noise(list(drawn_apart(gradient)))


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


def draws_of_seed(tensor: Any) -> list[Any] | None:
    """Of what the seed of a draw is made; None if it is no draw, or a replica's own.

    Args:
        tensor: Of a graph.
    """
    if not tensor.op.type.startswith("StatelessRandom") or draws_by_itself(tensor.op):
        return None
    left, seeds = list(tensor.op.inputs), []
    while left:
        each = left.pop()
        if each.op.type.startswith("StatelessRandom"):
            left += each.op.inputs
        else:
            seeds.append(each)
    return seeds


def drawn_apart(gradient: Any) -> Iterator[Any]:
    """What each replica draws by itself and adds to a gradient.

    Args:
        gradient: A tensor of a graph.
    """
    drawn: list[Any] = []
    others: list[Any] = []
    for term in _terms(gradient):
        (drawn if draws_by_itself(term.op) else others).append(term)
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
        factors = [each for each in op.inputs if each.shape.rank != 0] if op.type in FACTORS else []
        if op.type in SUMS:
            left += op.inputs
        elif op.type in SAME_VALUES or op.type == "Neg":
            left.append(op.inputs[0])
        elif len(factors) == 1:
            left += factors
        else:
            yield tensor


def draws_by_itself(op: Any) -> bool:
    """Whether an operation of a graph draws what another replica does not.

    Args:
        op: `tf.Operation`.
    """
    if op.type in DRAWS_FROM_STATE:
        return True
    if not op.type.startswith("Stateless"):
        return False
    seeds = marked(op.graph, SEED_OF_REPLICA)
    behind = operations_behind(list(op.inputs), through_shapes=False)
    return any(id(output) in seeds for each in behind for output in each.outputs)
