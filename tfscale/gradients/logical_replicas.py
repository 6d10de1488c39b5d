"""Which logical replicas does a replica run, and what of a step is theirs?

With L of them a run is the same on any N <= L devices: logical replica l has its share of every batch, and draws by
its number, wherever it runs. A replica runs its own one after the other, as one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.randomness import made_outside
from tfscale.exact.silence import DRAWS_FROM_STATE
from tfscale.framework.graphs import captured_from_outside
from tfscale.framework.models import flat_layers
from tfscale.gradients.parts import Part, make_part, rows_of, with_rows
from tfscale.replicas.all_reduce import replica_number
from tfscale.replicas.made import made_under
from tfscale.replicas.replica_batch import ReplicaBatch, first_logical, own_rows, with_stand_in
from tfscale.replicas.share import Share


class LogicalReplicas(NamedTuple):
    """How the rows of a replica are divided where they are those of logical replicas."""

    total: int
    """Of the job."""
    deterministic: bool = False
    """Whether what they compute is added up in an order that no device has a part in."""


def logical_parts(batch: ReplicaBatch, share: Share, division: LogicalReplicas) -> tuple[Any, Callable[[Any], Part]]:
    """How many logical replicas a replica runs, and the rows of each: those of one of L, wherever it runs."""
    total, replicas, replica = division.total, share.num_replicas, replica_number()
    if batch.global_examples is None or batch.first_row is None:
        raise ModelError(
            "With `logical_replicas` it must be known where in the global batch the rows of a replica lie.\n"
            "Received: data that the script has distributed itself. Give `fit` the data as they were, or `dp.dataset`."
        )
    replica = replica if isinstance(replica, int) else tf.cast(replica, tf.int64)
    first = first_logical(replica, replicas, total)
    rows, is_even = own_rows(batch), total % replicas == 0
    count = total // replicas if is_even else first_logical(replica + 1, replicas, total) - first
    # The rows of two logical replicas differ by one at most, so that those of some are equal, or do not add up to this.
    is_known = is_even and isinstance(rows, int) and rows % count == 0 and not division.deterministic
    each = rows // count if is_known else None

    def part_at(index: Any) -> Part:
        if each is not None:
            part = make_part(batch, share, index, (index * each, (index + 1) * each))
            part = part._replace(batch=batch if count == 1 else with_rows(part.batch, each))
        else:
            start, stop = ((first + index + more) * batch.global_examples // total - batch.first_row for more in (0, 1))
            # A logical replica may be empty, as a replica may.
            within = with_stand_in(start, stop, tf.cast(rows, tf.int64))
            part = make_part(batch, share, index, (start, stop))._replace(batch=rows_of(batch, within))
            if division.deterministic:
                # One graph for all: shapes that are known on some devices only would make it another one there.
                part = part._replace(batch=with_rows(part.batch, None))
        known = part.share._replace(logical=first + index, rows_known=isinstance(rows, int))
        return part._replace(share=known)

    return count, part_at


def refuse_draws_from_states() -> None:
    """Refuses a graph that draws from a state of its own: it goes on from one logical replica to the next of a device.

    Raises:
        ModelError: Naming the operation.
    """
    if tf.executing_eagerly():
        return
    _refuse_generators_from_outside(tf.compat.v1.get_default_graph())
    graph = tf.compat.v1.get_default_graph().as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    drawing = next((node for node in nodes if node.op in DRAWS_FROM_STATE), None)
    if drawing is not None:
        raise ModelError(
            "With `logical_replicas` random numbers must come from `keras.random`, whose seeds are told apart.\n"
            f"Received: {drawing.name!r} of type {drawing.op}, which draws from a state of its own. Use `keras.random` "
            "with a `keras.random.SeedGenerator`, or leave `logical_replicas` out."
        )


def _refuse_generators_from_outside(graph: Any) -> None:
    """Refuses states of `keras.random.SeedGenerator` that were made elsewhere: one is all devices' own, and goes on."""
    strategy = tf.distribute.get_strategy()
    copies = [strategy.experimental_local_results(each) for each in made_under(strategy).variables]
    known = {id(copy.handle) for each in copies for copy in each}
    outside = captured_from_outside(graph)
    for op in graph.get_operations():
        is_seed = op.type == "AssignVariableOp" and op.inputs[1].dtype.is_integer and op.inputs[1].shape == [2]
        handle = outside.get(op.inputs[0].op.name) if is_seed else None
        if handle is not None and not tf.is_symbolic_tensor(handle) and id(handle) not in known:
            raise made_outside(f"one that was made outside of it, in {op.name!r}")


_ONLY_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape")


def changed_by_pass(variables: Sequence[keras.Variable]) -> list[keras.Variable]:
    """Which of these a pass that was traced, or run, may have changed, such as SpectralNormalization its kernel.

    Args:
        variables: Of which a replica has a copy of its own.
    """
    if tf.executing_eagerly():
        return list(variables)
    graph = tf.compat.v1.get_default_graph()
    outside = captured_from_outside(graph)
    ops = (op for op in graph.get_operations() if op.type not in _ONLY_READS)
    names = {each.op.name for op in ops for each in op.inputs if each.dtype == tf.resource}
    handles = {id(outside[name]) for name in names if name in outside}
    strategy = tf.distribute.get_strategy()
    return [
        variable
        for variable in variables
        if any(id(copy.handle) in handles for copy in strategy.experimental_local_results(variable.value))
    ]


def kept_by_layers(model: keras.Model, others: Sequence[keras.Variable]) -> list[keras.Variable]:
    """What layers change besides in a step, such as SpectralNormalization its vector. Frozen ones change nothing."""
    known = {id(each) for each in (*others, *model.metrics_variables)}
    layers = [layer for layer in flat_layers(model) if layer is not model]
    known |= {id(each) for layer in layers if not layer.trainable for each in layer.variables}
    kept = {id(each): each for layer in layers for each in layer.non_trainable_variables}
    return [variable for identity, variable in kept.items() if identity not in known]
