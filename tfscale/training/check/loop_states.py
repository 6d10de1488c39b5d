"""Which variables does a loop by hand leave with a value that one replica would not have?

Its steps are not compared with those of one replica, as those of `fit` are: nobody knows which of its numbers are parts
of a sum. But what it assigns to variables is read in the graph of what it gives to `strategy.run`.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.randomness import seed_generators
from tfscale.replicas.made import made_under
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_walk import Frame, ReplicaWalk, is_read_together
from tfscale.training.check.assignments import (
    CHANGES,
    Assigned,
    LastValue,
    last_values,
    of_no_optimizer,
)

EAGER_STEPS = Fact[int](ReplicaGroup, "eager_steps_of_loops")
_SUMS = frozenset(("AddN", "AddV2", "Sub"))
_PASSES_ON = frozenset(("Cast", "Identity"))
_COUNTER = (
    "tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM)"
)
_APART = (
    "In a loop by hand every variable must get what one replica would give it.\n"
    "Received: {names}, assigned in `strategy.run` from what each replica computed of its own rows, or from their "
    "number. Bring the replicas together first: tfscale.gather_rows(x) are the rows of all of them, "
    "`tf.distribute.get_replica_context().all_reduce` adds up gradients, and keras.layers.BatchNormalization takes "
    "`synchronized=True`. Gradients that are kept for a later step are for variables with `trainable=False`. What is "
    f"counted is for a `{_COUNTER}`, and what is not of rows for "
    "`aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA`."
)
_REPEATED = (
    "What is assigned to a variable with `aggregation` SUM is added up over the replicas, and so would be its old "
    "value, which all of them have.\n"
    "Received: {names}, assigned in `strategy.run` from its old value (Keras's `assign_add` does so). Make it a "
    f"`{_COUNTER}`, whose `assign_add` sends what is added alone."
)
_ALIKE = (
    "What is added to a variable with `aggregation` SUM is added up over the replicas, and so is a number that is the "
    "same on all of them.\n"
    "Received: {names}, to which every replica adds 1 in `strategy.run`, whatever its rows. Count steps in a "
    "`tf.Variable(0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)`."
)


@tf.autograph.experimental.do_not_convert
def refuse_states_apart(strategy: tf.distribute.Strategy, first: int, rows: Sequence[Any]) -> None:
    """Refuses what a loop by hand has assigned to variables that would be other numbers on one replica.

    Args:
        strategy: Whose `run` was just called. To be called in the same graph.
        first: How many operations the graph had before.
        rows: How many rows each replica of this process has: a number where the graph may have it as a constant.

    Raises:
        ModelError: A variable gets what a replica computed of its own rows, and nothing brings the replicas together;
            or is added to as no sum over replicas may be.
    """
    walk = ReplicaWalk(strategy, are_alike=True)
    asked = _asked(strategy)
    shapes = {tuple(each.shape) for each in asked if each.trainable}
    by_variable = collections.defaultdict(list)
    for last in last_values(strategy, walk, asked, first):
        by_variable[id(last.variable)].append(last)
    faults: dict[str, set[str]] = {_APART: set(), _REPEATED: set(), _ALIKE: set()}
    for copies in by_variable.values():
        variable = copies[0].variable
        fault = _fault(walk, variable, copies, [rows[each.replica] for each in copies])
        if fault == _APART and not variable.trainable and tuple(variable.shape) in shapes:
            # Gradients that are kept for a later step.
            fault = None if all(_adds_own(walk, each) for each in copies) else fault
        if fault is not None:
            faults[fault].add(variable.name)
    for message, names in faults.items():
        if names:
            raise ModelError(message.format(names=", ".join(map(repr, sorted(names)))))


def refuse_copies_apart(strategy: tf.distribute.Strategy) -> None:
    """As `refuse_states_apart`, of steps that run eagerly: by what they have left, after the 1st, 2nd, 4th ... of them.

    Args:
        strategy: Whose `run` was just called, with rows of its own for each replica.

    Raises:
        ModelError: Of this process's replicas, some have another value of a variable than others.
    """
    EAGER_STEPS.set(strategy, count := EAGER_STEPS.of(strategy, 0) + 1)
    if count & (count - 1):
        return
    asked = _asked(strategy)
    shapes = {tuple(each.shape) for each in asked if each.trainable}
    apart = [
        each.name
        for each in asked
        if not is_read_together(each)
        # Gradients that are kept for a later step.
        and (each.trainable or tuple(each.shape) not in shapes)
        and _are_apart(strategy.experimental_local_results(each))
    ]
    if apart:
        raise ModelError(_APART.format(names=", ".join(map(repr, sorted(apart)))))


def _are_apart(copies: Sequence[Any]) -> bool:
    first, *others = [copy.numpy() for copy in copies]
    return not all(np.array_equal(first, each, equal_nan=first.dtype.kind == "f") for each in others)


def _asked(strategy: tf.distribute.Strategy) -> list[Any]:
    """Variables of floating point, and counters; not those of metrics, nor the states of generators."""
    left_out = {id(each.value) for metric in made_under(strategy).metrics for each in metric.variables}
    left_out |= {id(generator.state.value) for generator in seed_generators(strategy)}
    return [
        each
        for each in of_no_optimizer(strategy)
        if id(each) not in left_out and (each.dtype.is_floating or each.shape.rank == 0)
    ]


def _fault(walk: ReplicaWalk, variable: Any, copies: Sequence[LastValue], rows: Sequence[Any]) -> str | None:
    """Why a variable would be another number on one replica."""
    added = [(own, _number_added(each)) for own, each in zip(rows, copies, strict=True)]
    if variable.aggregation == tf.VariableAggregation.SUM:
        if not is_read_together(variable):
            is_repeated = any(_is_made_of(walk, each, variable) for copy in copies for each in copy.made_of)
            return _REPEATED if is_repeated else None
        has_ones = all(isinstance(own, int) and number == 1 for own, number in added)
        return _ALIKE if has_ones and any(own != 1 for own in rows) else None
    if any(walk.may_differ(each.frame, each.value) for copy in copies for each in copy.made_of):
        return _APART
    if variable.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA:
        return None
    # Where the graph has the number of rows as a constant, nothing else tells it from any other.
    count_rows = all(isinstance(own, int) and _is_multiple(number, own) for own, number in added)
    return _APART if count_rows and any(own > 1 for own in rows) else None


def _number_added(last: LastValue) -> Any:
    """The constant that is all that is added to a copy; None where there is none."""
    found: list[Any] = []
    for each in last.made_of:
        if each.by is None:
            continue
        if each.by.type in CHANGES:
            terms = [each.value]
        elif each.value.op.type in _SUMS:
            terms = list(each.value.op.inputs)
        else:
            return None
        found += [number for number in map(_constant, terms) if number is not None]
    return found[0] if len(found) == 1 else None


def _constant(tensor: Any) -> Any:
    """A number that the graph has as a constant; None for another tensor."""
    tensor = _passed_on(tensor)
    if tensor.shape.rank != 0:
        return None
    if tensor.op.type == "StridedSlice":
        # `tf.shape(x)[0]` of a shape that is known.
        whole, begin = map(tf.get_static_value, tensor.op.inputs[:2])
        return None if whole is None or begin is None else whole[tuple(begin)]
    return tf.get_static_value(tensor)


def _passed_on(tensor: Any) -> Any:
    while tensor.op.type in _PASSES_ON:
        tensor = tensor.op.inputs[0]
    return tensor


def _is_multiple(number: Any, own: int) -> bool:
    if number is None:
        return False
    return bool(number % own == 0 and number != 0) if own else bool(number == 0)


def _adds_own(walk: ReplicaWalk, last: LastValue) -> bool:
    """Whether a replica's own part is added to what its copy has, as gradients are accumulated."""
    return all(each.by is None or _adds_to(walk, each, last.variable) for each in last.made_of)


def _adds_to(walk: ReplicaWalk, assigned: Assigned, variable: Any) -> bool:
    if assigned.by.type in CHANGES:
        return True
    if assigned.value.op.type not in _SUMS:
        return not walk.may_differ(assigned.frame, assigned.value)
    return any(_reads(walk, assigned.frame, _passed_on(term).op, variable) for term in assigned.value.op.inputs)


def _reads(walk: ReplicaWalk, frame: Frame, op: Any, variable: Any) -> bool:
    """Whether an operation reads a copy of the variable."""
    handles = {id(copy.handle) for copy in variable.values}
    return any(each.dtype == tf.resource and id(walk.eager_tensor(frame, each)) in handles for each in op.inputs)


def _is_made_of(walk: ReplicaWalk, assigned: Assigned, variable: Any) -> bool:
    """Whether it is a value to which a copy of the variable itself went."""
    if assigned.by is None or assigned.by.type in CHANGES:
        return False
    left, seen = [assigned.value], set()
    while left:
        op = left.pop().op
        if op.name in seen:
            continue
        seen.add(op.name)
        if _reads(walk, assigned.frame, op, variable):
            return True
        left += op.inputs
    return False
