"""What a graph holds that was made of the number of replicas: noted while it is traced, and refused where it is wrong.

In a function of `strategy.run` the number stands for the rows of a replica (`replica_count.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.replicas.graph_walk import SAME_VALUES
from tfscale.step_context import Slot

# In a graph, what was made of the number of replicas.
_COUNTS = "tfscale_counts_of_replicas"
# Likewise, by what something was multiplied that is a replica's own.
_TIMES = "tfscale_times_replicas"
# Likewise, what was divided by it, and what came of that.
_PARTS = "tfscale_parts_of_replicas"
# The graphs in which such is noted while a function runs: the step's own, and those of functions that it calls.
_GRAPHS = Slot[list[Any] | None]("graphs_of_loop")
# They hand on what they are given, in another shape or type.
_HAND_ON = SAME_VALUES | {"BroadcastTo", "Fill", "GatherV2", "Pack", "StridedSlice", "Tile"}
_ADD_UP = SAME_VALUES | {"AddN", "AddV2", "Mean", "Mul", "MulNoNan", "Neg", "RealDiv", "Sub", "Sum"}
_ROUND = frozenset(("Ceil", "Floor", "FloorDiv", "FloorMod", "Range", "Rint", "Round"))
_COMPARE = frozenset(("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "Minimum", "NotEqual", "Sub"))


@contextlib.contextmanager
def noting_counts() -> Iterator[None]:
    """Notes what a function of `strategy.run` makes of the number of replicas, and refuses at its end what is wrong."""
    with _GRAPHS.carrying([]), _refusing_whole_numbers(), _refusing_parts_of_parts():
        yield


def note_count(count: tf.Tensor) -> tf.Tensor:
    """Notes, and returns, a number of replicas."""
    if tf.is_symbolic_tensor(count):
        _note(count.graph, _COUNTS, count)
    return count


def note_times(count: tf.Tensor) -> None:
    """Notes a number of replicas by which something is multiplied."""
    if tf.is_symbolic_tensor(count):
        _note(count.graph, _TIMES, count)


def note_part(value: tf.Tensor, part: tf.Tensor) -> None:
    """Notes that `part` is what `value` was divided to."""
    if tf.is_symbolic_tensor(part):
        _note(part.graph, _PARTS, (value, part))


def noted_parts() -> set[int]:
    """The identities of the operations that make n_i / n, or its inverse, for such a loop to divide by; in graphs."""
    parts = [divided.op.inputs[1] for _, divided in _all_noted(_PARTS)]
    return {id(each.op) for each in parts} | noted_counts()


def noted_counts() -> set[int]:
    """Those of them that make the inverse: the number of replicas."""
    return {id(each.op) for each in _all_noted(_COUNTS)}


def noted_times() -> set[int]:
    """As `noted_counts`, by which something was multiplied."""
    return noted_counts() | {id(each.op) for each in _all_noted(_TIMES)}


class NoPlainNumberError(ModelError, TypeError):
    """What TensorFlow takes for an operand that it is not made for, and so asks the other one."""


def no_plain_number(count: int) -> NoPlainNumberError:
    """Returns the error for who takes the number of `count` replicas for a plain one in such a function."""
    return NoPlainNumberError(
        "In a function of `strategy.run` the number of replicas counts their rows, and is no plain number: in a list "
        "(a shape), an array, a constant, a comparison, a `float`, a cast to integers, or rounded.\n"
        f"Received: {count} replicas. Write `int(strategy.num_replicas_in_sync)` there, and divide losses by "
        "`strategy.num_replicas_in_sync` itself. For the rows of all replicas there is tfscale.gather_rows(x)."
    )


@contextlib.contextmanager
def _refusing_whole_numbers() -> Iterator[None]:
    """Refuses, in graphs, what makes a whole number of the number of replicas that stands for the rows of one."""
    yield
    left, seen = _all_noted(_COUNTS), set[int]()
    while left:
        tensor = left.pop()
        for op in tensor.consumers():
            becomes = op.outputs[0].dtype if op.type == "Cast" else tensor.dtype
            if op.type in _ROUND | _COMPARE or not becomes.is_floating:
                raise no_plain_number(int(tf.distribute.get_strategy().num_replicas_in_sync))
            if op.type in _HAND_ON and id(op) not in seen:
                seen.add(id(op))
                left += op.outputs


@contextlib.contextmanager
def _refusing_parts_of_parts() -> Iterator[None]:
    """Refuses, in graphs, to divide a loss by the number of replicas that was divided by it already."""
    yield
    divided = _all_noted(_PARTS)
    parts = {id(part) for _, part in divided}
    for given, _ in divided:
        left, seen = [given], set[int]()
        while left:
            tensor = left.pop()
            if id(tensor) in parts:
                raise ModelError(
                    "In a function of `strategy.run` a loss is divided by the number of replicas once.\n"
                    f"Received: {given.name!r}, which is divided by it, and was made of {tensor.name!r}, which was "
                    "too. Keras's losses divide what they return: leave one division out, or make them with "
                    "`reduction=None`."
                )
            if tensor.op.type in _ADD_UP and id(tensor.op) not in seen:
                seen.add(id(tensor.op))
                left += tensor.op.inputs


def _note(graph: Any, name: str, what: Any) -> None:
    graph.add_to_collection(name, what)
    graphs = _GRAPHS.value
    if graphs is not None and not any(each is graph for each in graphs):
        graphs.append(graph)


def _all_noted(name: str) -> list[Any]:
    return [each for graph in _GRAPHS.value or [] for each in graph.get_collection(name)]
