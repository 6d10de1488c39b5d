"""What does a step do where data of unknown length end?

Keras learns of the end when its step finds no batch. Unless XLA has compiled the step into one operation, whatever of
it needs no batch is run all the same, and alike in every run: one iteration is counted, weights decay, generators of
random numbers move on. Here a step waits for its batch, because its replicas wait for one another; what needs none is
run by itself where one device would run it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact.randomness import draw_as_first_here
from tfscale.framework.graphs import define_functions
from tfscale.gradients.double_buffer import at_once
from tfscale.replicas.made import made_under
from tfscale.replicas.own_share import as_lone_replica
from tfscale.training.step.rehearsal import traced_for
from tfscale.training.step.state import is_counted

_log = logging.getLogger(__name__)
_READS = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"))


def ending_as_keras(
    model: keras.Model, function: Callable[[Any], Any], rest: Callable[[], Callable[[], None]]
) -> Callable[[Any], Any]:
    """`function`, where its data end with what plain Keras does then.

    Args:
        model: Compiled.
        function: Runs training steps; fails where there is no batch.
        rest: Makes what is to be run then, such as `what_needs_no_batch`.
    """
    made: list[Callable[[], None]] = []

    @functools.wraps(function)
    def call(iterator: Any) -> Any:
        try:
            return function(iterator)
        except tf.errors.OutOfRangeError:
            # Several steps in a call are made in a loop that asks whether there is a batch.
            if not (model.jit_compile or model.run_eagerly or model.steps_per_execution != 1):
                if not made:
                    made.append(rest())
                made[0]()
            raise

    return call


def what_needs_no_batch(
    strategy: tf.distribute.Strategy, step: Callable[[Any], Any], data_spec: Any
) -> Callable[[], None]:
    """What a step does to variables, whatever its rows are.

    Args:
        strategy: Of the variables.
        step: Takes a batch, on one device.
        data_spec: Structure of specs of a batch; None where a part is missing.

    Returns:
        A function that does it, alike on all replicas.
    """

    def alone(data: Any) -> None:
        draw_as_first_here(strategy)
        with as_lone_replica(strategy), at_once():
            step(data)

    concrete = traced_for(data_spec, alone)
    captured = list(concrete.captured_inputs)
    names = [tensor.op.name for tensor in concrete.inputs]
    num_batch = len(names) - len(captured)
    graph = concrete.graph.as_graph_def()
    kept = _without(graph, names[:num_batch])
    outside = dict(zip(names[num_batch:], captured, strict=True))
    written = {
        id(outside[name])
        for node in kept
        if node.op not in _READS
        for name in (each.split(":")[0] for each in node.input)
        if name in outside and outside[name].dtype == tf.resource
    }
    if _runs_parts_of_conditions(graph, kept):
        _log.warning(
            "the data have no known length, and the step decides by something else than its batch (gradient "
            "accumulation does). Where they end, plain Keras without XLA runs parts of that without a batch, and "
            "may lose what was accumulated; tfscale does not. For equal numbers tell the length: "
            "dataset.apply(tf.data.experimental.assert_cardinality(n))"
        )
        return lambda: None
    if not written:
        return lambda: None
    for node in kept:
        # Beside whom it wants to be, who may be gone.
        node.attr.pop("_class", None)
    del graph.node[:]
    graph.node.extend(kept)
    define_functions(graph.library.function)

    @tf.function(autograph=False)
    def run(*values: Any) -> None:
        given = dict(zip(outside, values, strict=True))
        tf.graph_util.import_graph_def(graph, input_map=given, name="")

    def rest() -> None:
        run(*captured)
        for variable in made_under(strategy).variables:
            first, *others = strategy.experimental_local_results(variable)
            if id(first.handle) in written and not is_counted(variable):
                for copy in others:
                    copy.assign(first)

    return rest


def _runs_parts_of_conditions(graph: Any, kept: list[Any]) -> bool:
    """Whether a condition waits for the batch and what decides it does not: TensorFlow runs what it can of a branch."""
    names = {node.name for node in kept}
    left = [node for node in graph.node if node.name not in names and node.op in ("If", "Case")]
    return any(node.input[0].split(":")[0] in names for node in left)


def _without(graph: Any, names: list[str]) -> list[Any]:
    """The nodes of a graph that wait for none of these."""
    following: dict[str, list[str]] = {}
    for node in graph.node:
        for source in node.input:
            following.setdefault(source.removeprefix("^").split(":")[0], []).append(node.name)
    waiting, left = set(names), list(names)
    while left:
        for name in following.get(left.pop(), ()):
            if name not in waiting:
                waiting.add(name)
                left.append(name)
    return [node for node in graph.node if node.name not in waiting]
