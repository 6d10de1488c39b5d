"""Which variables does a step leave with another value on each replica?

A layer or a step may assign to a variable what it computed of its own rows: an average, a probability that it adapts, a
queue. Where all rows of the first batch happen to agree, no number shows it, but the graph does.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfscale.replicas.made import made_under
from tfscale.replicas.replica_walk import Frame, ReplicaWalk

_SETS = frozenset(("AssignVariableOp",))
_CHANGES = frozenset(("AssignAddVariableOp", "AssignSubVariableOp"))


def assigned_apart(strategy: tf.distribute.Strategy, first: int) -> list[str]:
    """Names of the variables whose last value, in a step just traced, is made of a replica's own rows.

    Left out are those of optimizers, in which each replica may accumulate its own, and those that are added up or
    averaged where they are read.

    Args:
        strategy: That of the step. To be called in the graph in which its `run` was.
        first: How many operations the graph had before the step.
    """
    names = _names_by_handle(strategy)
    walk = ReplicaWalk(strategy)
    made_of: dict[int, list[tuple[Frame, Any]]] = {}
    for op, frame, decisions in walk.operations(Frame(tf.compat.v1.get_default_graph()), first):
        if op.type not in _SETS and op.type not in _CHANGES:
            continue
        handle = id(walk.eager_tensor(frame, op.inputs[0]))
        if handle in names:
            before = [] if op.type in _SETS and not decisions else made_of.get(handle, [])
            made_of[handle] = [*before, (frame, op.inputs[1]), *decisions]
    return sorted(
        {names[handle] for handle, values in made_of.items() if any(walk.may_differ(*each) for each in values)}
    )


def _names_by_handle(strategy: tf.distribute.Strategy) -> dict[int, str]:
    made = made_under(strategy)
    of_optimizers = {id(each.value) for optimizer in made.optimizers for each in optimizer.variables}
    found = {}
    for variable in made.variables:
        copies = strategy.experimental_local_results(variable)
        is_read_together = getattr(variable, "synchronization", None) == tf.VariableSynchronization.ON_READ
        if id(variable) in of_optimizers or is_read_together or not variable.dtype.is_floating:
            continue
        found.update({id(copy.handle): variable.name for copy in copies})
    return found
