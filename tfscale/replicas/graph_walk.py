"""What does a tensor of a graph depend on?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from tfscale.framework.graphs import captured_from_outside
from tfscale.replicas.marks import OWN, insides, marked

# What these say of a tensor depends on its shape alone.
SHAPES = frozenset(("Rank", "Shape", "ShapeN", "Size"))
# A variable is the same on all replicas. Whatever else has a state may be anything: an iterator, a random number.
_VARIABLES = frozenset(("ReadVariableOp", "VarHandleOp"))
SUMS = frozenset(("Add", "AddN", "AddV2", "Sub"))
# They give each number once, and change its sign or how it is held at most: what is a part of a sum stays one.
HAND_ON = frozenset(("Cast", "Identity", "Neg", "Reshape"))
# They give numbers several times.
REPEATS = frozenset(("BroadcastTo", "Tile"))
# They tell how many there are.
SIZES = frozenset(("Shape", "Size"))
# They divide by their second tensor.
QUOTIENTS = frozenset(("Div", "DivNoNan", "RealDiv", "Xdivy"))
# Only shape or type of their first input is another one in what they make.
SAME_VALUES = frozenset(("Cast", "EnsureShape", "ExpandDims", "Identity", "Reshape", "Squeeze", "StopGradient"))


def depends_on(tensors: Any, is_source: Callable[[Any], bool]) -> bool:
    """Whether any of `tensors` was made of what an operation made of which `is_source` holds."""
    return any(is_source(op) for op in operations_behind(tensors, through_shapes=True))


def depends_on_batch(tensor: tf.Tensor) -> bool:
    """Whether the values of a tensor of a graph may depend on the examples.

    False only where they are known to be the same for every batch of one shape: positions, but not tokens.
    """
    own: dict[int, set[int]] = {}
    for op in operations_behind(tensor, through_shapes=False):
        if op.type == "Placeholder" or (op.op_def.is_stateful and op.type not in _VARIABLES):
            return True
        # A few numbers that a graph has captured are constants of it, and may be the batch.
        if id(op.graph) not in own:
            own[id(op.graph)] = marked(op.graph, OWN)
        if any(id(output) in own[id(op.graph)] for output in op.outputs):
            return True
    return False


def is_made_by(tensor: tf.Tensor, kinds: Mapping[str, int]) -> bool:
    """Whether a tensor of a graph is an output of an operation of one of `kinds`, at most in another shape.

    Args:
        tensor: Of a graph, or any other, of which nothing is known.
        kinds: The place of the output, by the type of the operation.
    """
    inside = _Insides()
    while tf.is_symbolic_tensor(tensor):
        tensor = inside(tensor)
        if tensor.op.type in kinds:
            return bool(tensor.value_index == kinds[tensor.op.type])
        outside = captured_from_outside(tensor.op.graph)
        if tensor.op.name in outside:
            tensor = outside[tensor.op.name]
        elif tensor.op.type in SAME_VALUES:
            tensor = tensor.op.inputs[0]
        elif _counts_from_the_end(tensor.op):
            tensor = tensor.op.inputs[2]
        else:
            return False
    return False


def _counts_from_the_end(op: Any) -> bool:
    """Whether it is `where(index < 0, index + count, index)`, as in all lookups of Keras: others stay others."""
    if op.type != "SelectV2" or op.inputs[0].op.type != "Less":
        return False
    index = op.inputs[2]
    return op.inputs[0].op.inputs[0] is index and any(each is index for each in op.inputs[1].op.inputs)


def operations_behind(tensors: Any, *, through_shapes: bool) -> Iterator[Any]:
    """All operations by which tensors were made, in their graph, in those around it, and in functions for XLA.

    Args:
        tensors: Nested structure of tensors of graphs.
        through_shapes: Whether a shape is made of what has it.
    """
    inside = _Insides()
    left = [inside(leaf).op for leaf in tf.nest.flatten(tensors, expand_composites=True) if tf.is_tensor(leaf)]
    seen = set(map(id, left))
    captured: dict[int, dict[str, Any]] = {}
    while left:
        op = left.pop()
        if id(op.graph) not in captured:
            captured[id(op.graph)] = captured_from_outside(op.graph)
        outside = captured[id(op.graph)]
        if op.name in outside:
            # A stand-in for a tensor of the graph around this one, or for something that is there already.
            behind = [outside[op.name]] if tf.is_symbolic_tensor(outside[op.name]) else []
        else:
            yield op
            behind = list(op.inputs) if through_shapes or op.type not in SHAPES else []
        for each in map(inside, behind):
            if id(each.op) not in seen:
                seen.add(id(each.op))
                left.append(each.op)


class _Insides:
    """What the results of functions that XLA compiles are made of is in the functions' own graphs."""

    def __init__(self) -> None:
        self._known: dict[int, dict[int, tf.Tensor]] = {}

    def __call__(self, tensor: Any) -> Any:
        while tf.is_symbolic_tensor(tensor):
            if id(tensor.graph) not in self._known:
                self._known[id(tensor.graph)] = insides(tensor.graph)
            if id(tensor) not in self._known[id(tensor.graph)]:
                break
            tensor = self._known[id(tensor.graph)][id(tensor)]
        return tensor


def innermost_tensor(tensor: tf.Tensor) -> tf.Tensor:
    """What a tensor is in the graph of the function for XLA that returned it; itself if none did."""
    return _Insides()(tensor)


def compares_with_itself(op: Any) -> bool:
    """Whether an operation compares something that is never NaN with itself, as `tf.recompute_grad` does.

    Args:
        op: Of a graph.
    """
    if op.type not in ("Equal", "NotEqual"):
        return False
    return op.inputs[0] is op.inputs[1] and not op.inputs[0].dtype.is_floating


def plain_number(tensor: tf.Tensor) -> float | None:
    """That of which all of a tensor is made, where the graph tells it."""
    value = tf.get_static_value(tensor)
    return float(value.flat[0]) if value is not None and value.size and (value == value.flat[0]).all() else None
