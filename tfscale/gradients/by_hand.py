"""What has a loop by hand made of its gradients, before an optimizer gets them to add them up?

Parts of a sum may be scaled and added to one another; not clipped. And what the loop has added up itself is the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.numbers_of_loops import Kind, kind_of_number
from tfscale.gradients.alike_terms import refuse_terms_alike
from tfscale.gradients.own_means import are_of_parts, refuse_own_means
from tfscale.gradients.own_noise import drawn_apart
from tfscale.replicas.divided import FACTORS
from tfscale.replicas.graph_walk import HAND_ON, depends_on
from tfscale.replicas.replica_walk import Frame, ReplicaWalk, is_collective

# Of a sum they are not the sum of what they are of its parts; none is the last one on the way back to a variable.
_NOT_LINEAR = frozenset(("Abs", "ClipByValue", "Maximum", "Minimum", "Sign", "Sqrt", "Square", "Tanh"))


def are_summed_by_hand(gradients: Sequence[Any], variables: Sequence[Any], strategy: tf.distribute.Strategy) -> bool:
    """Whether gradients are sums over all replicas, equal on each, and made of what the loop itself has sent.

    Args:
        gradients: As an optimizer gets them.
        variables: That it is to update by them.
        strategy: Whose replica asks.

    Raises:
        ModelError: When they are a replica's own, and something was done to them that needs the sum; or when they are
            those of a mean over its own rows, have a term that is the same on all replicas, or noise that is not.
    """
    tensors = [each.values if isinstance(each, tf.IndexedSlices) else each for each in gradients if each is not None]
    if not tensors or not all(map(tf.is_symbolic_tensor, tensors)):
        # Without a graph nobody knows what was made of what.
        return False
    walk = ReplicaWalk(strategy)
    if depends_on(tensors, is_collective) and not any(walk.may_differ(Frame(each.graph), each) for each in tensors):
        return True
    for tensor in tensors:
        needs_sum = _needs_sum(tensor)
        if needs_sum is not None and walk.may_differ(Frame(tensor.graph), tensor):
            raise ModelError(
                "In a loop by hand the gradients of a replica are parts of a sum, which the optimizer adds up: what is "
                "not linear (clipping, norms, signs) needs the sum.\n"
                f"Received: gradients from {needs_sum.name!r} of type {needs_sum.type}. Write "
                "`gradients = tfscale.sum_gradients(gradients)` before it, or give the optimizer `clipnorm`, "
                "`global_clipnorm` or `clipvalue`."
            )
    _refuse_noise(tensors)
    refuse_own_means(walk, tensors)
    # What comes back to single rows of a table is of the rows that were looked up, whatever it is.
    dense = [each for each in gradients if each is not None and not isinstance(each, tf.IndexedSlices)]
    refuse_terms_alike(walk, dense, variables)
    return False


def refuse_mean_of_parts(value: Any) -> None:
    """Refuses that a loop by hand takes the mean over the replicas of what are parts of a sum.

    Args:
        value: Of one replica, for which it asks its context.

    Raises:
        ModelError: When the graph tells that it has been divided already.
    """
    leaves = [each for each in tf.nest.flatten(value) if tf.is_symbolic_tensor(each) and each.dtype.is_floating]
    numbers = [each for each in leaves if each.shape.rank == 0]
    arrays = [each for each in leaves if each.shape.rank != 0]
    parts = [each for each in numbers if kind_of_number(each) is Kind.PART]
    if not parts and not (arrays and are_of_parts(ReplicaWalk(tf.distribute.get_strategy()), arrays)):
        return
    name = (parts or arrays)[0].name
    raise ModelError(
        "What each replica has divided by the number of replicas, or by the size of the batch, is its part of a sum, "
        "of which the mean is less than one device has.\n"
        f'Received: `all_reduce("MEAN", ...)` of {name!r}. Write `all_reduce("SUM", ...)`.'
    )


def _refuse_noise(gradients: Sequence[Any]) -> None:
    drawn = [each for gradient in gradients for each in drawn_apart(gradient)]
    if drawn:
        raise ModelError(
            "In a loop by hand the gradients of a replica are parts of a sum, which the optimizer adds up: of noise "
            "that each replica draws by itself, that is more than one device adds.\n"
            f"Received: gradients to which {drawn[0].op.name!r} is added. Draw it by `tf.random.stateless_normal` with "
            "a seed of `optimizer.iterations`, which is the same on all, and divide it by "
            "`strategy.num_replicas_in_sync`."
        )


def _needs_sum(tensor: tf.Tensor) -> Any:
    """The operation that makes of a gradient what it would not make of a part of it; None if there is none in sight."""
    factors = []
    while True:
        op = tensor.op
        if op.type in _NOT_LINEAR:
            return op
        if op.type in FACTORS:
            numbers = [each for each in op.inputs if each.shape.num_elements() == 1]
            if len(numbers) != 1:
                break
            factors.append((op, numbers[0]))
            tensor = next(each for each in op.inputs if each is not numbers[0])
        elif op.type in HAND_ON:
            tensor = op.inputs[0]
        else:
            break
    made_by = tensor.op
    # Clipped by its own length, or by that of all.
    return next((op for op, number in factors if depends_on([number], lambda each: each is made_by)), None)
