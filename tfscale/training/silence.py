"""How does a traced step run twice with the same numbers, though it draws random ones?

Every operation that draws is replaced in a copy of the graph by one that fills its output with one constant: dropout
keeps all, noise is the same in each row, wherever in the program it is drawn. So rows can be compared that a replica
draws for itself with those that one device draws for all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.training import _graph_private


class _Draw(NamedTuple):
    """How an operation that draws is replaced."""

    shape: int
    """Which of its inputs is the shape."""
    value: float | int
    """What it is filled with; with an integer, the input of this place."""


# A name is not given twice.
_COUNT = itertools.count()
# In the middle of what they draw, and not zero, so that whatever is multiplied by it is still seen.
_UNIFORM, _NORMAL = 0.5, 0.25
_DRAWS = {
    "RandomUniform": _Draw(0, _UNIFORM),
    "RandomStandardNormal": _Draw(0, _NORMAL),
    "TruncatedNormal": _Draw(0, _NORMAL),
    "RandomUniformInt": _Draw(0, 1),
    "StatelessRandomUniform": _Draw(0, _UNIFORM),
    "StatelessRandomNormal": _Draw(0, _NORMAL),
    "StatelessTruncatedNormal": _Draw(0, _NORMAL),
    "StatelessRandomUniformInt": _Draw(0, 2),
    "StatelessRandomUniformV2": _Draw(0, _UNIFORM),
    "StatelessRandomNormalV2": _Draw(0, _NORMAL),
    "StatelessTruncatedNormalV2": _Draw(0, _NORMAL),
    "StatelessRandomUniformIntV2": _Draw(0, 4),
    "StatefulUniform": _Draw(2, _UNIFORM),
    "StatefulStandardNormalV2": _Draw(2, _NORMAL),
    "StatefulTruncatedNormal": _Draw(2, _NORMAL),
    "StatefulUniformInt": _Draw(2, 3),
}
# Orders of rows: as they come.
_UNCHANGED = frozenset(("RandomShuffle",))
DRAWS_FROM_STATE = frozenset(
    ("RandomShuffle", "Multinomial", "RandomGamma", "RandomPoissonV2", "ParameterizedTruncatedNormal")
) | {name for name in _DRAWS if not name.startswith("Stateless")}
"""Operations that draw from a state of their own, or of a `tf.random.Generator`: not alike on two replicas."""


def silenced(concrete: Any) -> Callable[..., Any]:
    """A function with the arguments and the results of `concrete` that draws nothing.

    Args:
        concrete: A `ConcreteFunction` that returns a list of tensors. It is returned itself where nothing is drawn.
    """
    graph = concrete.graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    if not any(node.op in _DRAWS or node.op in _UNCHANGED for node in nodes):
        return concrete
    _silence(graph.node, lambda name: name)
    for inner in graph.library.function:
        # Inside of a function an output is named with its place.
        _silence(inner.node_def, lambda name: f"{name}:output:0")
    _rename_functions(graph)
    _graph_private.define_functions(graph.library.function)
    captured = list(concrete.captured_inputs)

    @tf.function(autograph=False)
    def function(*values: Any) -> Any:
        given = dict(zip((tensor.op.name for tensor in concrete.inputs), values, strict=True))
        names = [tensor.name for tensor in concrete.outputs]
        return tf.graph_util.import_graph_def(graph, input_map=given, return_elements=names, name="")

    def call(*arguments: Any) -> Any:
        return function(*tf.nest.flatten(arguments, expand_composites=True), *captured)

    return call


def _rename_functions(graph: Any) -> None:
    """Gives the functions of a graph names of their own: by the old ones TensorFlow knows them as they were."""
    new = {each.signature.name: f"{each.signature.name}_silenced{next(_COUNT)}" for each in graph.library.function}
    for function in graph.library.function:
        function.signature.name = new[function.signature.name]
    for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
        node.op = new.get(node.op, node.op)
        for attribute in node.attr.values():
            for function in (attribute.func, *attribute.list.func):
                if function.name in new:
                    function.name = new[function.name]
    for gradient in graph.library.gradient:
        gradient.function_name = new.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = new.get(gradient.gradient_func, gradient.gradient_func)


def _silence(nodes: Any, output_of: Callable[[str], str]) -> None:
    for node in list(nodes):
        if node.op in _UNCHANGED:
            kind = node.attr["T"].type
            data = node.input[0]
            _become(node, "Identity", [data], {"T": kind})
        elif node.op in _DRAWS:
            _fill(nodes, node, _DRAWS[node.op], output_of)


def _fill(nodes: Any, node: Any, draw: _Draw, output_of: Callable[[str], str]) -> None:
    dtype = next(node.attr[name].type for name in ("dtype", "Tout") if name in node.attr)
    index_type = next(node.attr[name].type for name in ("Tshape", "shape_dtype", "T") if name in node.attr)
    shape = node.input[draw.shape]
    if isinstance(draw.value, int):
        value = node.input[draw.value]
    else:
        constant = nodes.add()
        constant.name, constant.op = f"{node.name}/silenced", "Const"
        constant.attr["dtype"].type = dtype
        proto = tf.make_tensor_proto(draw.value, tf.as_dtype(dtype))
        constant.attr["value"].tensor.CopyFrom(proto)
        value = output_of(constant.name)
    _become(node, "Fill", [shape, value], {"T": dtype, "index_type": index_type})


def _become(node: Any, op: str, inputs: list[str], types: dict[str, int]) -> None:
    kept = [name for name in node.input if name.startswith("^")]
    device = node.device
    node.op = op
    del node.input[:]
    node.input.extend([*inputs, *kept])
    for name in list(node.attr):
        if not name.startswith("_"):
            del node.attr[name]
    for name, kind in types.items():
        node.attr[name].type = kind
    node.device = device
