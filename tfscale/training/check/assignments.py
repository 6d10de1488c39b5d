"""Which variables does a step leave with another value on each replica?

A layer or a step may assign to a variable what it computed of its own rows: an average, a probability that it adapts, a
queue. Where all rows of the first batch happen to agree, no number shows it, but the graph does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.replicas.made import made_under
from tfscale.replicas.replica_walk import Frame, ReplicaWalk, is_read_together

_SETS = frozenset(("AssignVariableOp",))
# They leave the old value in the new one.
CHANGES = frozenset(("AssignAddVariableOp", "AssignSubVariableOp"))


class Assigned(NamedTuple):
    """Of what the last value of a variable is made."""

    frame: Frame
    value: Any
    by: Any
    """The operation that assigns it; None for a decision whether one is assigned."""


class LastValue(NamedTuple):
    """What a step leaves in a replica's copy of a variable."""

    variable: Any
    replica: int
    made_of: list[Assigned]


def assigned_apart(strategy: tf.distribute.Strategy, first: int) -> list[str]:
    """Names of the variables whose last value, in a step just traced, is made of a replica's own rows.

    Left out are those of optimizers, in which each replica may accumulate its own, and those that are added up or
    averaged where they are read.

    Args:
        strategy: That of the step. To be called in the graph in which its `run` was.
        first: How many operations the graph had before the step.
    """
    walk = ReplicaWalk(strategy)
    variables = [each for each in of_no_optimizer(strategy) if each.dtype.is_floating and not is_read_together(each)]
    assigned = last_values(strategy, walk, variables, first)
    return sorted(
        {
            last.variable.name
            for last in assigned
            if any(walk.may_differ(each.frame, each.value) for each in last.made_of)
        }
    )


def last_values(
    strategy: tf.distribute.Strategy, walk: ReplicaWalk, variables: Sequence[Any], first: int
) -> list[LastValue]:
    """Of each copy that a step assigns to, of what its last value is made.

    Args:
        strategy: As for `assigned_apart`.
        walk: Of the step.
        variables: Those that are asked for, of all replicas.
        first: As for `assigned_apart`.
    """
    by_handle = {
        id(copy.handle): (variable, replica)
        for variable in variables
        for replica, copy in enumerate(strategy.experimental_local_results(variable))
    }
    made_of: dict[int, list[Assigned]] = {}
    for op, frame, decisions in walk.operations(Frame(tf.compat.v1.get_default_graph()), first):
        if op.type not in _SETS and op.type not in CHANGES:
            continue
        handle = id(walk.eager_tensor(frame, op.inputs[0]))
        if handle in by_handle:
            before = [] if op.type in _SETS and not decisions else made_of.get(handle, [])
            decided = [Assigned(*each, None) for each in decisions]
            made_of[handle] = [*before, Assigned(frame, op.inputs[1], op), *decided]
    return [LastValue(*by_handle[handle], values) for handle, values in made_of.items()]


def of_no_optimizer(strategy: tf.distribute.Strategy) -> list[Any]:
    """Variables under the scope of a strategy, of all replicas, but those of optimizers."""
    made = made_under(strategy)
    of_optimizers = {id(each.value) for optimizer in made.optimizers for each in optimizer.variables}
    return [each for each in made.variables if id(each) not in of_optimizers]
