"""Has a loop by hand a loss that is the same on all replicas, such as that of a regularizer, which nobody has divided?

The optimizer adds up what the replicas give it: of a penalty on weights that stands beside a part of a sum, N times the
gradient of one device. `tf.nn.scale_regularization_loss` is made for it, and left out more often than not. So it is
with what is added to the gradients themselves: weights that decay, noise of a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.numbers_of_loops import is_part_beside_others
from tfscale.gradients.own_means import OF_TAPE, plain_factor
from tfscale.gradients.own_noise import draws_of_seed
from tfscale.replicas.count_notes import noted_parts
from tfscale.replicas.divided import FACTORS, divides_by_replicas
from tfscale.replicas.graph_walk import HAND_ON, SUMS, operations_behind
from tfscale.replicas.replica_count import own_rows
from tfscale.replicas.replica_walk import Frame, ReplicaWalk, is_collective
from tfscale.replicas.share import num_replicas

_ROW_SUMS = frozenset(("BiasAddGrad", "Sum"))


def refuse_terms_alike(walk: ReplicaWalk, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """Refuses gradients in which a term is that of every replica. To be called by a replica, in the graph of its loop.

    Args:
        walk: That of the strategy.
        gradients: Tensors of a graph, as an optimizer gets them.
        variables: That it is to update by them.

    Raises:
        ModelError: When some gradients are made of the replica's rows, and a term of one is made of none.
    """
    if own_rows() is None or num_replicas() == 1:
        return
    terms = [each for gradient in gradients for each in _terms(gradient)]
    handles = _handles(variables)
    alike = [
        term
        for term, is_divided in terms
        if not is_divided and _is_alike(walk, term) and _is_whole(walk, term, handles)
    ]
    # A number is not taken to pieces there: it may be a part, less a number.
    numbers = [each for each in gradients if each.shape.num_elements() == 1]
    alike += [each for each in numbers if is_part_beside_others(each)]
    if not alike:
        return
    raise ModelError(
        "In a function of `strategy.run` a replica's loss is its part of a sum, which the optimizer adds up: what is "
        "the same on all replicas, such as a penalty on weights, counts several times.\n"
        f"Received: gradients of which a term is made of no rows ({alike[0].name!r}), and nobody has divided it. Give "
        "such losses to `tf.nn.scale_regularization_loss(...)`, or divide the whole loss by "
        "`strategy.num_replicas_in_sync`; what is added to gradients, too, or to `tfscale.sum_gradients(gradients)`."
    )


def _terms(gradient: Any) -> Iterator[tuple[Any, bool]]:
    """Of what a gradient is a sum, by whatever that is multiplied; and whether the number of replicas divides that."""
    left = [(gradient, False)]
    while left:
        tensor, is_divided = left.pop()
        inner = _without_factors(tensor)
        if inner.op.type not in SUMS:
            yield tensor, is_divided
            continue
        is_divided = is_divided or any(map(divides_by_replicas, _factors_of(tensor, inner)))
        left += [(each, is_divided) for each in inner.op.inputs]


def _handles(variables: Sequence[Any]) -> set[int]:
    """Identities of what stands for the copies of variables in a graph."""
    own = [each.value if isinstance(each, keras.Variable) else each for each in variables]
    copies = [copy for each in own for copy in tf.distribute.get_strategy().experimental_local_results(each)]
    return {id(copy.handle) for copy in copies if hasattr(copy, "handle")}


def _without_factors(tensor: Any) -> Any:
    while True:
        before = _before_factor(tensor)
        if before is None:
            return tensor
        tensor = before


def _factors_of(tensor: Any, inner: Any) -> Iterator[Any]:
    """The operations by which a tensor is made of one that is inside of its factors."""
    while tensor is not inner:
        yield tensor.op
        tensor = _before_factor(tensor)


def _before_factor(tensor: Any) -> Any:
    """What a tensor is times a single number; None if it is not."""
    op = tensor.op
    if op.type in HAND_ON:
        return op.inputs[0]
    numbers = [each for each in op.inputs if each.shape.num_elements() == 1] if op.type in FACTORS else []
    if len(numbers) != 1 or op.outputs[0].shape.num_elements() == 1:
        return None
    return next(each for each in op.inputs if each is not numbers[0])


def _is_alike(walk: ReplicaWalk, term: Any) -> bool:
    """Whether it is the same on all replicas; what is drawn by a seed is as that."""
    seeds = draws_of_seed(_without_factors(term))
    return not any(walk.may_differ(Frame(each.graph), each) for each in (seeds if seeds is not None else [term]))


def _is_whole(walk: ReplicaWalk, term: Any, handles: set[int]) -> bool:
    """Whether it is something, no sum that was kept, and nothing in it is a replica's part."""
    behind = list(operations_behind([term], through_shapes=False))
    parts, rows = noted_parts(), own_rows()
    if any(id(op) in parts or is_collective(op) for op in behind):
        # What the loop has sent may be by how many the rows of all replicas are.
        return False
    if not any(OF_TAPE in op.name for op in behind) and not _is_added_to_gradients(walk, term, behind, handles):
        return False
    if isinstance(rows, int) and any(_sums_rows(op, rows) for op in behind):
        return False
    factors = [term, *(term.op.inputs if term.op.type in FACTORS else [])]
    return all(plain_factor(each) != 0 for each in factors)


def _is_added_to_gradients(walk: ReplicaWalk, term: Any, behind: Sequence[Any], handles: set[int]) -> bool:
    """Whether it is made of the weights themselves, drawn, or constant: what other variables keep may be own sums."""
    read = [op.inputs[0] for op in behind if op.type == "ReadVariableOp"]
    of_weights = any(id(walk.eager_tensor(Frame(each.graph), each)) in handles for each in read)
    return of_weights or not read or draws_of_seed(_without_factors(term)) is not None


def _sums_rows(op: Any, rows: int) -> bool:
    """Whether it adds up what may be the same of each row: the gradient of a bias that is a term of what rows lose.

    It is made of no numbers in the rows, and of as many as these are: a part of a sum.
    """
    shape = op.inputs[0].shape if op.type in _ROW_SUMS else None
    if shape is None or not shape.rank or shape[0] is None:
        return False
    # Two rows or one after the other, as of tokens.
    return bool(shape[0] == rows or (rows > 1 and shape[0] % rows == 0))
