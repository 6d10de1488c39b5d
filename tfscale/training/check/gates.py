"""In which states may a step do what it does not do as it begins?

`tf.cond(step == 2, ...)`, `step % 5 == 3` and `tf.switch_case(step)` hold the number in the graph of the step: what is
compared with a variable is followed back to the value that the variable has then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfscale.framework.graphs import captured_from_outside
from tfscale.training.step.state import value_of

Copies = Sequence[tf.Variable]
"""Those of one variable that are in this process."""
LaterState = list[tuple[tf.Variable, float | np.ndarray]]
"""Variables, and what all numbers in them, or each of them, may be later."""

# Each costs two runs of the step.
_MOST = 12
# What may be zero at first, or so little that nothing shows: the weight of a loss, or of one of several ...
_WEIGHT = 0.5
_NOTHING = 1e-5
# ... and the steps that were made: a prime, at which little falls due; a number at which falls due what does every up
# to 16 steps, and the one before it, for what counts first.
_COUNTS = (997, 720_719, 720_720)
# Of an eager step nothing tells what it compares.
_FIRST_COUNTS = (1, 2, 3)
_COMPARE = {"Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"}
_MODULO = {"FloorMod", "Mod", "TruncateMod"}
_DIVIDE = {"FloorDiv", "TruncateDiv", "RealDiv", "Div"}
_FORMS = {"Identity", "Cast", "Reshape", "Squeeze", "ExpandDims", "StridedSlice", "Slice", "GatherV2"}
_SAME = {*_FORMS, "StopGradient", "Floor", "Round", "Maximum", "Minimum"}
_READS = {"ReadVariableOp", "ResourceGather"}
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
_BRANCHES = {"If": ("then_branch", "else_branch"), "StatelessIf": ("then_branch", "else_branch")}
_CASES = {"Case", "StatelessCase"}


class _Handle(NamedTuple):
    """That of a variable that is asked about."""

    place: int


class _Count(NamedTuple):
    """A number that is computed from such a variable."""

    place: int
    back: Callable[[float], float]
    """The value of the variable with which it is so much."""


class _Table(NamedTuple):
    """Numbers of which a counter takes one, such as the weights of a loss by step."""

    changes: tuple[int, ...]
    """Where the number is another than the one before it."""


_Value = float | _Handle | _Count | _Table | None


def later_states(function: Any, numbers: Collection[Copies]) -> Iterator[LaterState]:
    """States in which the step may do something else, as it may with counters, weights of losses, and flags.

    Args:
        function: The traced step, or None where it is run eagerly.
        numbers: Variables of few numbers that are part of its state.
    """
    integers = [copies for copies in numbers if copies[0].dtype.is_integer]
    others = [copies for copies in numbers if copies[0].dtype.is_floating]
    flags = [copies for copies in numbers if copies[0].dtype.is_bool]

    zero_counts = [copies for copies in integers if _is_single_zero(copies[0])]

    def zeros(count: float) -> LaterState:
        return [*_set_to(zero_counts, count), *itertools.chain(*map(_with_weight, others))]

    if zeros(0):
        counts = (*_COUNTS, *_FIRST_COUNTS) if function is None else _COUNTS
        # Without a counter it is one state.
        yield from map(zeros, counts if zero_counts else counts[:1])
    if function is not None:
        for count, compared in _beside(function, integers, _COUNTS):
            yield [*zeros(count), *_set_to(compared, count)]
        for value, compared in _beside(function, others, ()):
            yield [*zeros(_COUNTS[0]), *_set_to(compared, value)]
    if flags:
        yield [*zeros(_COUNTS[0]), *((copy, not value_of(copy).numpy().flat[0]) for copies in flags for copy in copies)]


def _beside(function: Any, numbers: Sequence[Copies], leave_out: Collection[int]) -> Iterator[tuple[int, list[Copies]]]:
    found = compared_with(function, numbers)
    compared = [numbers[place] for place in found]
    # With zero the step was compared already, unless one of them is another number as it begins.
    tried = leave_out if any(np.any(value_of(copies[0])) for copies in compared) else (0, *leave_out)
    for count in counts_beside(itertools.chain(*found.values()), tried):
        yield count, compared


def _set_to(numbers: Collection[Copies], value: float) -> LaterState:
    return [(copy, value) for copies in numbers for copy in copies]


def _with_weight(copies: Copies) -> LaterState:
    """Weights that count nothing so far, as they may be later; what is trained shows by its gradient."""
    held = value_of(copies[0]).numpy()
    nothing = np.abs(held) < _NOTHING
    if not np.any(nothing) or (held.size > 1 and copies[0].trainable):
        return []
    return [(copy, np.where(nothing, np.asarray(_WEIGHT, held.dtype), held)) for copy in copies]


def _is_single_zero(variable: tf.Variable) -> bool:
    return variable.shape.num_elements() == 1 and not np.any(value_of(variable))


def compared_with(function: Any, variables: Sequence[Copies]) -> dict[int, list[float]]:
    """By the place of a variable: values at which, or beside which, a traced function decides what it does.

    Args:
        function: `tf.types.experimental.ConcreteFunction`.
        variables: To be asked about.
    """
    handles = {id(copy.handle): place for place, copies in enumerate(variables) for copy in copies}
    given: dict[str, _Value] = {
        name: _Handle(handles[id(outside)])
        for name, outside in captured_from_outside(function.graph).items()
        if id(outside) in handles
    }
    if not given:
        return {}
    definition = function.graph.as_graph_def()
    graph = _Graph({each.signature.name: each for each in definition.library.function})
    graph.walk(definition.node, given)
    return {place: sorted(values) for place, values in graph.found.items()}


def counts_beside(values: Iterable[float], leave_out: Collection[int]) -> list[int]:
    """The integers at these values and next to them that are not negative, the least first; no more than can be tried.

    Args:
        values: As from `compared_with`.
        leave_out: What is tried anyway.

    >>> counts_beside([2.0, 10.0], leave_out=(11,))
    [1, 2, 3, 9, 10]
    """
    near = {int(value) + more for value in values if abs(value) < 2**31 for more in (-1, 0, 1)}
    return sorted(count for count in near - set(leave_out) if count >= 0)[:_MOST]


class _Graph:
    """Walks through a graph and the functions that it calls, and keeps what it compares.

    Args:
        functions: By name.
    """

    def __init__(self, functions: Mapping[str, Any]):
        self.found: dict[int, set[float]] = {}
        self._functions = functions

    def walk(self, nodes: Collection[Any], given: dict[str, _Value]) -> Callable[[str], _Value]:
        """Meets all operations of one graph; returns what tells the value of an input, as it is written there."""
        by_name = {node.name: node for node in nodes}
        values: dict[str, Any] = dict(given)

        def value_of(reference: str) -> _Value:
            name, *place = reference.split(":")
            if name not in values:
                values[name] = None
                if name in by_name:
                    values[name] = self._meet(by_name[name], value_of)
            value = values[name]
            if isinstance(value, list):
                index = int(place[-1]) if place else 0
                return value[index] if index < len(value) else None
            return value

        for node in nodes:
            value_of(node.name)
        return value_of

    def _meet(self, node: Any, value_of: Callable[[str], _Value]) -> Any:
        if node.op == "Const":
            return _number(node)
        inputs = [value_of(each) for each in node.input if not each.startswith("^")]
        if node.op in _CALLS:
            return self._call(node.attr["f"].func.name, inputs)
        for branch in _BRANCHES.get(node.op, ()):
            self._call(node.attr[branch].func.name, inputs[1:])
        if node.op in _CASES:
            branches = node.attr["branches"].list.func
            if isinstance(inputs[0], _Count):
                self._keep(inputs[0], *range(len(branches)))
            for each in branches:
                self._call(each.name, inputs[1:])
        if node.op in ("While", "StatelessWhile"):
            for part in ("cond", "body"):
                self._call(node.attr[part].func.name, inputs)
        if node.op in _READS and isinstance(inputs[0], _Handle):
            return _Count(inputs[0].place, lambda value: value)
        if node.op in _FORMS:
            if isinstance(inputs[0], _Table):
                self._take(inputs[0], inputs[1:])
            return inputs[0]
        if node.op == "Unpack":
            return [inputs[0]] * node.attr["num"].i
        # An index alone, and one that is counted from the end where it is negative.
        if node.op == "Pack" and len(inputs) == 1:
            return inputs[0]
        if node.op in ("Select", "SelectV2"):
            return next((each for each in reversed(inputs[1:]) if isinstance(each, _Count)), None)
        return self._computed(node.op, inputs)

    def _take(self, table: _Table, indices: list[_Value]) -> None:
        for count in indices:
            if isinstance(count, _Count):
                self._keep(count, *table.changes)

    def _keep(self, count: _Count, *values: float) -> None:
        self.found.setdefault(count.place, set()).update(map(count.back, values))

    def _computed(self, kind: str, inputs: list[_Value]) -> _Value:
        """A number that is computed from a count and from others."""
        count = next((each for each in inputs if isinstance(each, _Count)), None)
        if count is None:
            return None
        if kind in _SAME:
            return count
        if len(inputs) != 2:
            return None
        other = next((each for each in inputs if isinstance(each, float)), None)
        if other is None:
            return None
        back = count.back
        if kind in _COMPARE or kind in _MODULO:
            self._keep(count, other)
            return count if kind in _MODULO else None
        if kind in ("AddV2", "Add"):
            return count._replace(back=lambda value: back(value - other))
        if kind == "Sub":
            is_first = isinstance(inputs[0], _Count)
            return count._replace(back=lambda value: back(value + other if is_first else other - value))
        if kind == "Mul" and other:
            return count._replace(back=lambda value: back(value / other))
        if kind in _DIVIDE and isinstance(inputs[0], _Count):
            return count._replace(back=lambda value: back(value * other))
        return None

    def _call(self, name: str, inputs: list[_Value]) -> list[_Value]:
        function = self._functions.get(name)
        if function is None or not any(isinstance(each, _Handle | _Count) for each in inputs):
            return []
        arguments = [each.name for each in function.signature.input_arg]
        value_of = self.walk(function.node_def, dict(zip(arguments, inputs, strict=True)))
        return [value_of(function.ret[each.name]) for each in function.signature.output_arg]


def _number(node: Any) -> float | _Table | None:
    tensor = node.attr["value"].tensor
    shape, dtype = tf.TensorShape(tensor.tensor_shape), tf.DType(tensor.dtype)
    if not (dtype.is_floating or dtype.is_integer):
        return None
    if shape.num_elements() == 1:
        return float(tf.make_ndarray(tensor).item())
    if shape.rank != 1 or not shape.num_elements():
        return None
    return _Table(tuple(map(int, 1 + np.flatnonzero(np.diff(tf.make_ndarray(tensor))))))
