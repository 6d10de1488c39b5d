"""What does a step do where data of unknown length end?

Keras learns of the end when its step finds no batch. Unless XLA has compiled the step into one operation, whatever of
it needs no batch is run all the same, and alike in every run: one iteration is counted, weights decay, generators of
random numbers move on, and metrics count rows whose number does not depend on the batch. Here a step waits for its
batch, because its replicas wait for one another; what needs none is run by itself where one device would run it.
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
from tfscale.framework.models import runs_eagerly
from tfscale.gradients.double_buffer import at_once
from tfscale.replicas.counted import is_counted
from tfscale.replicas.made import made_under
from tfscale.replicas.own_share import as_lone_replica
from tfscale.replicas.owners import Fact, PreparedModel
from tfscale.replicas.replica_batch import worker_rank
from tfscale.training.step.rehearsal import traced_for
from tfscale.training.step.state import value_of

_log = logging.getLogger(__name__)
# Returns whether metrics have counted.
Rest = Callable[[], bool]
_READS = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"))


COUNTED_MORE = Fact[bool](PreparedModel, "metrics counted where data ended")


class DataEnd:
    """The end of the data that one function of a model is given, call by call of `fit` or `evaluate`.

    Args:
        model: Compiled.
        rest: Makes of specs of a batch what is to be run then, such as `what_needs_no_batch`.
    """

    def __init__(self, model: keras.Model, rest: Callable[[Any], Rest]):
        self._model = model
        self._rest = rest
        self._made: dict[str, Rest] = {}
        self._spec: Any = None
        # Which trace Keras's function takes for these data, one of any number of rows too, is for TensorFlow to say.
        self._choose = tf.function(lambda data: None, reduce_retracing=True, autograph=False)

    def begin(self, data_spec: Any) -> None:
        """To be called when the function is about to get data of these specs; None where a part is missing."""
        # Data of other parts are another argument: as many arguments of a function could not be compared.
        self._spec = self._choose.get_concrete_function(data_spec).structured_input_signature[0][0]

    def as_keras(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`function`, which runs steps and fails where there is no batch, with what plain Keras does then."""
        model = self._model

        @functools.wraps(function)
        def call(iterator: Any) -> Any:
            try:
                return function(iterator)
            except tf.errors.OutOfRangeError:
                # Several steps in a call are made in a loop that asks whether there is a batch.
                if not (model.jit_compile or runs_eagerly(model) or model.steps_per_execution != 1):
                    self._end()
                raise

        return call

    def _end(self) -> None:
        key = str(self._spec)
        if key not in self._made:
            self._made[key] = self._rest(self._spec)
        if self._made[key]():
            COUNTED_MORE.set(self._model, True)


def what_needs_no_batch(strategy: tf.distribute.Strategy, step: Callable[[Any], Any], data_spec: Any) -> Rest:
    """What a step does to variables, whatever its rows are.

    Args:
        strategy: Of the variables.
        step: Takes a batch, on one device.
        data_spec: Structure of specs of a batch; None where a part is missing.

    Returns:
        A function that does it, alike on all replicas, and returns whether it has counted in a metric.
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
        return lambda: False
    if not written:
        return lambda: False
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

    def rest() -> bool:
        made = ((each, strategy.experimental_local_results(each)) for each in made_under(strategy).variables)
        changed = [(each, copies) for each, copies in made if id(copies[0].handle) in written]
        counted = [copies[0] for each, copies in changed if is_counted(each)]
        # Copies are added up, those of other workers as well: one of all counts.
        held = [(copy, value_of(copy)) for copy in counted if worker_rank(strategy)]
        run(*captured)
        for copy, value in held:
            copy.assign(value)
        for first, *others in (copies for each, copies in changed if not is_counted(each)):
            for copy in others:
                copy.assign(first)
        return bool(counted)

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
