"""The unpromised names of TensorFlow's graphs and functions."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context, lift_to_graph
from tensorflow.python.framework import auto_control_deps, op_def_registry
from tensorflow.python.ops import control_flow_util, control_flow_v2_func_graphs


def graphs_around(graph: Any) -> Iterator[Any]:
    """A graph, and each that stands around the one before.

    Why: a loop, a branch and a function have a graph of their own, which no public name leads out of.
    Breaks first: tests/replicas/test_graph_walk.py.
    """
    while graph is not None:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def around_loops(graph: Any, outer: Any) -> Any:
    """The graph around the outermost loop of TensorFlow that `graph` is part of, or None where it is in no loop.

    Args:
        graph: The inner one.
        outer: Another, around it, which may be part of a loop itself.

    Why: what is read in every turn of a loop has a gradient in every turn, and nothing can be sent there.
    Breaks first: tests/training/test_contract.py, "gradients clipped by hand, beside a recurrent layer".
    """
    kinds = control_flow_v2_func_graphs.WhileBodyFuncGraph, control_flow_v2_func_graphs.WhileCondFuncGraph
    return _around(graph, outer, *kinds)


def has_loop_between(graph: Any, outer: Any) -> bool:
    """Whether a graph is part of a loop of TensorFlow that stands within another graph.

    Args:
        graph: The inner one.
        outer: The other, or None for any around it.

    Why and breaks first: as `around_loops`, and tests/exact/test_randomness.py.
    """
    return any(isinstance(each, control_flow_v2_func_graphs.WhileBodyFuncGraph) for each in _up_to(outer, graph))


def around_conditions(graph: Any, outer: Any) -> Any:
    """The graph around the outermost condition of TensorFlow that `graph` is part of, or None where it is in none.

    Args:
        graph: The inner one.
        outer: Another, around it, which may be part of a condition itself.

    Why: the gradient of a condition asks what it captures for its graph, and what sends captures a tensor of none
    (`AttributeError: Tensor.graph is undefined when eager execution is enabled`, TensorFlow 2.21).
    Breaks first: tests/training/check/test_conditions.py.
    """
    return _around(graph, outer, control_flow_v2_func_graphs.CondBranchFuncGraph)


def _around(graph: Any, outer: Any, *kinds: Any) -> Any:
    around = [each.outer_graph for each in _up_to(outer, graph) if isinstance(each, kinds)]
    return around[-1] if around else None


def _up_to(outer: Any, graph: Any) -> Iterator[Any]:
    return itertools.takewhile(lambda each: each is not outer, graphs_around(graph))


def is_within_reach(value: Any) -> bool:
    """Whether code in the graph of this moment can use a tensor: an eager one, one of its own, or of a graph around it.

    Why: what a branch or a loop has computed does not get out of it (`InaccessibleTensorError`, TensorFlow 2.21).
    Breaks first: tests/gradients/test_changing_nothing.py.
    """
    if not tf.is_symbolic_tensor(value):
        return True
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    return any(each is value.graph for each in graphs_around(graph))


def captured_from_outside(graph: Any) -> dict[str, Any]:
    """What the placeholders of a function's graph stand for that were made for tensors of outside, by their names.

    Why: whether an index comes from the batch shows only in the graph around a loop or a function that XLA compiles.
    And whoever asks a function for its `captured_inputs` takes the keys of its next collectives (2.21), of which all
    workers must have taken as many.
    Breaks first: tests/replicas/test_graph_walk.py.
    """
    return {inside.op.name: outside for outside, inside in getattr(graph, "captures", ())}


def keep_in_order(graph: Any, places: Sequence[range]) -> None:
    """Has operations with side effects and without a state wait for those among them that were traced before, only.

    Why: TensorFlow has each wait for all that were traced into the graph before, also for those of another replica.
    Breaks first: tests/replicas/test_turns.py.

    Args:
        graph: That is being traced.
        places: Of the operations of one replica, as `graph.get_operations` counts.
    """
    manager = getattr(graph, "experimental_acd_manager", None)
    if manager is None:
        return
    operations, last = graph.get_operations(), None
    for op in (operations[place] for each in places for place in each):
        if auto_control_deps.op_is_stateful(op) and not any(each.dtype == tf.resource for each in op.inputs):
            manager.run_independently(op)
            if last is not None:
                op._add_control_input(last)
            last = op


def define_functions(functions: Iterable[Any]) -> None:
    """Lets the runtime know functions by their definitions, which a graph that was imported calls.

    Why: `tf.graph_util.import_graph_def` brings them into the graph alone, and a loop or a condition in it would look
    for them in vain.
    Breaks first: tests/exact/test_silence.py::test_inside_of_loops_and_with_variables.
    """
    for function in functions:
        context.context().add_function_def(function)


def definition_of(kind: str) -> Any:
    """What an operation of this kind takes and gives: the `OpDef` with its `input_arg` and `output_arg`.

    Why: in a function's definition an output is called by its name, and no input tells its type.
    Breaks first: tests/exact/test_silence.py::test_inside_of_loops_and_with_variables.
    """
    return op_def_registry.get(kind)


class DeviceName(str):
    """The name of a device that is equal to itself only."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


@contextlib.contextmanager
def naming_device(strategy: tf.distribute.Strategy, rename: Callable[[str], DeviceName]) -> Iterator[None]:
    """Calls this thread's device by another name, for which TensorFlow has traced no `tf.function` yet.

    Why: what was traced is kept by the arguments and the device around the call, and by nothing that a step could set.
    Breaks first: tests/training/test_contract_programs.py, the table of functions.

    Args:
        strategy: Of whose replicas this thread traces one.
        rename: Given the device's name, returns the same text.
    """
    strategy.extended._retrace_functions_for_each_device = True
    known = context.context()
    name, spec = known.device_name, known.device_spec
    known._set_device(rename(str(name or "")), spec)
    try:
        yield
    finally:
        known._set_device(name, spec)


def graph_of_function(graph: Any, name: str) -> Any:
    """The graph of a function that an operation of `graph` calls by its name, or None where it is not known here.

    Why: whether a replica may wait in there for another one shows only in there.
    Breaks first: tests/replicas/test_branches.py.
    """
    known = (each._get_function(name) for each in graphs_around(graph))
    return getattr(next((function for function in known if function is not None), None), "graph", None)


@contextlib.contextmanager
def without_graph_optimizer() -> Iterator[None]:
    """Has TensorFlow run functions whose first call is made meanwhile as they were traced: Grappler leaves them alone.

    Why: the public switch (`tf.config.optimizer.set_experimental_options`) is one for all functions of the process. A
    function's own is read where it is called; each setting makes a function of its own, which is made ready anew.
    Breaks first: tests/framework/test_graphs.py::test_without_graph_optimizer.
    """
    known = context.context()
    before = known.function_call_options
    settings = config_pb2.ConfigProto.FromString(before.config_proto_serialized)
    settings.graph_options.rewrite_options.disable_meta_optimizer = True
    known.function_call_options = context.FunctionCallOptions(before.executor_type, settings)
    try:
        yield
    finally:
        known.function_call_options = before


def is_traced_for_xla() -> bool:
    """Whether a function that XLA compiles as a whole is being traced, whoever said so.

    Why: `tf.function(jit_compile=True)` tells those inside of it by a context that has no public name.
    Breaks first: tests/training/test_errors.py::test_loops_by_hand.
    """
    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def value_outside(tensor: tf.Tensor) -> tf.Tensor:
    """The value of a tensor of a graph that is being traced, from outside of it.

    Why: a variable may be made of a tensor, such as `keras.Variable(1.0)` in a layer or an optimizer that the step
    builds; TensorFlow's own function computes it in a graph of its own, in this way.
    Breaks first: tests/training/test_contract.py, "values of tensors for what a step makes".

    Raises:
        ValueError: When it depends on what the function is given.
    """
    return tf.function(
        lambda: lift_to_graph.lift_to_graph([tensor], tf.compat.v1.get_default_graph())[tensor], autograph=False
    )()
