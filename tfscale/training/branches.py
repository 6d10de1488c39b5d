"""Does every replica take part in the same collectives, or may one wait for ever?

A condition or a loop is run by each replica for itself. Where a condition's body sends something, all replicas must
decide alike: by variables, numbers or sums of all replicas, which are equal, and not by examples of their own.
In a loop, TensorFlow can send nothing: one turn's numbers could not be told from those of another.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.training import _graph_private
from tfscale.training.made import made_under

_LOOPS = frozenset(("While", "StatelessWhile"))
_CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
# What each of them calls, by the names of its attributes.
_BODIES = {
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
    **dict.fromkeys(_LOOPS, ("cond", "body")),
    **dict.fromkeys(_CALLS, ("f",)),
}
_COLLECTIVES = ("Collective", "NcclAllReduce")
_HANDLES = frozenset((tf.resource, tf.variant))
# Under these names a graph knows which of its tensors are one replica's own, and which are equal on all.
_OWN = "tfscale_own_rows"
_EQUAL = "tfscale_equal_on_all_replicas"
# Whatever else has a state may be a replica's own: what comes next of an iterator, a random number.
_READERS = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarHandleOp", "VarIsInitializedOp"))
_DRAWS = ("StatelessRandom", "StatelessTruncated", "StatelessParameterized", "StatelessMultinomial", "StatelessShuffle")


def mark_own(values: Any) -> None:
    """Says that these tensors, of the rows of one replica, are others on another one. Eager ones are passed over."""
    _mark(values, _OWN)


def mark_equal(values: Any) -> None:
    """Says that these tensors are equal on all replicas, whatever they were made of."""
    _mark(values, _EQUAL)


def _mark(values: Any, name: str) -> None:
    for leaf in tf.nest.flatten(values, expand_composites=True):
        if tf.is_symbolic_tensor(leaf):
            leaf.graph.add_to_collection(name, leaf)


@contextlib.contextmanager
def refusing_lone_collectives(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Refuses a step, traced meanwhile, in which a replica may wait for what another one does not send.

    Raises:
        ModelError: At the end, if the replicas of this process do not send equally often, a loop holds a collective, or
            so does a condition by what differs from replica to replica.
    """
    if strategy.num_replicas_in_sync == 1 or tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    # A loop that was there before may be one around all replicas, in which they may send what they like.
    known = len(graph.get_operations())
    yield
    walk = _Walk(strategy)
    sent = collections.Counter(op.device for op in walk.collectives(_Frame(graph), first=known))
    if sent and all(sent) and (len(set(sent.values())) > 1 or len(sent) < len(strategy.extended.worker_devices)):
        raise ModelError(
            f"Some replicas send more often than others (each time that {_OCCASIONS}): one would wait for ever.\n"
            f"Received: a step that sends {', '.join(f'{count} times on {device}' for device, count in sent.items())}. "
            "Do not decide by the number of a replica's rows (`x.shape[0]`) whether something is sent."
        )
    for op, frame in walk.branchings(_Frame(graph), first=known):
        if op.type in _LOOPS:
            raise ModelError(
                f"Inside of a loop {_SENDS}. TensorFlow gives that one key for all turns of the loop, so that "
                "replicas that are not in the same turn would take each other's numbers, or wait for ever.\n"
                f"Received: {op.name!r} of type {op.type}. Write the loop in Python (`for _ in range(n)`), which is "
                "unrolled as the step is traced, or send once, after the loop."
            )
        if walk.may_differ(*walk.decision_of(op, frame)):
            raise ModelError(
                f"Inside of a condition {_SENDS}, and each replica decides by its own rows, or by numbers it draws, "
                "whether it takes part: one could wait for ever.\n"
                f"Received: {op.name!r} of type {op.type}. Decide by what is equal on all replicas: a variable such as "
                "`optimizer.iterations`, or a number made of all rows, `tfscale.gather_rows(x)`; or apply the "
                "optimizer outside of the condition."
            )


_OCCASIONS = "an optimizer is applied, rows are gathered, statistics are synchronized"
_SENDS = f"something is sent to all replicas ({_OCCASIONS})"


class _Frame(NamedTuple):
    """A graph, and the operation of the graph around it that calls it."""

    graph: Any
    call: Any = None
    outer: _Frame | None = None


class _Walk:
    """Searches the graphs of one trace, inwards and outwards."""

    def __init__(self, strategy: tf.distribute.Strategy):
        self._differing_variables = {
            id(copy.handle)
            for variable in made_under(strategy).variables
            if getattr(variable, "synchronization", None) == tf.VariableSynchronization.ON_READ
            for copy in strategy.experimental_local_results(variable)
        }
        # By what they are of, which they keep alive: its identity is not given to anything else.
        self._frames: dict[tuple[int, str, str], Any] = {}
        self._sends: dict[int, tuple[Any, bool]] = {}
        self._marked: dict[tuple[int, str], tuple[Any, set[int]]] = {}

    def collectives(self, frame: _Frame, first: int = 0) -> Iterator[Any]:
        """All operations, from one on, that send."""
        for op in frame.graph.get_operations()[first:]:
            if _is_collective(op):
                yield op
            for body in self._bodies(op, frame).values():
                yield from self.collectives(body)

    def branchings(self, frame: _Frame, first: int = 0) -> Iterator[tuple[Any, _Frame]]:
        """Every condition and loop in which something is sent, from an operation on, and the frame it is in."""
        for op in frame.graph.get_operations()[first:]:
            bodies = [body for body in self._bodies(op, frame).values() if self._is_sending(body)]
            if bodies and op.type not in _CALLS:
                yield op, frame
            for body in bodies:
                yield from self.branchings(body)

    def decision_of(self, op: Any, frame: _Frame) -> tuple[_Frame, Any]:
        """The tensor by which a condition is chosen, or a loop goes on."""
        if op.type in _LOOPS:
            condition = self._bodies(op, frame)["cond"]
            return condition, condition.graph.outputs[0]
        return frame, op.inputs[0]

    def may_differ(self, frame: _Frame, tensor: Any) -> bool:
        """Whether a tensor may have another value on another replica."""
        left, seen = [(frame, tensor)], set()
        while left:
            frame, tensor = left.pop()
            place = id(frame.graph), tensor.op.name, tensor.value_index
            if place in seen:
                continue
            seen.add(place)
            if self._is_marked(frame, tensor, _EQUAL):
                continue
            behind = None if self._is_marked(frame, tensor, _OWN) else self._behind(frame, tensor)
            if behind is None:
                return True
            left += behind
        return False

    def _is_marked(self, frame: _Frame, tensor: Any, name: str) -> bool:
        key = id(frame.graph), name
        if key not in self._marked:
            self._marked[key] = frame.graph, set(map(id, frame.graph.get_collection(name)))
        return id(tensor) in self._marked[key][1]

    def _behind(self, frame: _Frame, tensor: Any) -> list[tuple[_Frame, Any]] | None:
        """Of what a tensor is made; nothing if it is equal on all replicas, None if it is a replica's own."""
        op = tensor.op
        if op.type == "Placeholder":
            return self._outside(frame, tensor)
        if _is_collective(op) or op.type in _READERS:
            # Whose inputs are handles of variables, equal or not.
            return [(frame, each) for each in op.inputs if each.dtype in _HANDLES]
        bodies = self._bodies(op, frame)
        if bodies:
            index = tensor.value_index
            made = [(body, body.graph.outputs[index]) for name, body in bodies.items() if name != "cond"]
            if op.type in _LOOPS:
                made.append((frame, op.inputs[index]))
            return made if op.type in _CALLS else [*made, self.decision_of(op, frame)]
        if op.type == "IdentityN":
            # Of a gradient of one's own: results beside arguments.
            return [(frame, op.inputs[tensor.value_index])]
        if op.op_def.is_stateful or op.type.startswith(_DRAWS):
            return None
        return [(frame, each) for each in op.inputs]

    def _outside(self, frame: _Frame, tensor: Any) -> list[tuple[_Frame, Any]] | None:
        """What stands behind a placeholder."""
        if frame.outer is not None:
            index = [each.op.name for each in frame.graph.inputs].index(tensor.op.name)
            if frame.call.type not in _LOOPS:
                return [(frame.outer, frame.call.inputs[index + (frame.call.type not in _CALLS)])]
            body = self._bodies(frame.call, frame.outer)["body"]
            return [(frame.outer, frame.call.inputs[index]), (body, body.graph.outputs[index])]
        captured = _graph_private.captured_from_outside(frame.graph)
        if tensor.op.name not in captured:
            # An argument of the function around `strategy.run`, or a loop variable there: of all its replicas.
            return []
        outside = captured[tensor.op.name]
        if tf.is_symbolic_tensor(outside):
            return [(_Frame(outside.graph), outside)]
        return None if id(outside) in self._differing_variables else []

    def _is_sending(self, frame: _Frame) -> bool:
        if id(frame.graph) not in self._sends:
            operations = frame.graph.get_operations()
            sends = any(map(_is_collective, operations)) or any(
                self._is_sending(body) for op in operations for body in self._bodies(op, frame).values()
            )
            self._sends[id(frame.graph)] = frame.graph, sends
        return self._sends[id(frame.graph)][1]

    def _bodies(self, op: Any, frame: _Frame) -> dict[str, _Frame]:
        """The functions that an operation calls, by the names or numbers of its branches."""
        found = {}
        for attribute in _BODIES.get(op.type, ()):
            functions = op.get_attr(attribute)
            for number, function in enumerate(functions if isinstance(functions, list) else [functions]):
                name = f"{attribute}{number or ''}"
                key = id(frame.graph), op.name, name
                if key not in self._frames:
                    graph = _graph_private.graph_of_function(frame.graph, function.name)
                    self._frames[key] = None if graph is None else _Frame(graph, op, frame)
                if self._frames[key] is not None:
                    found[name] = self._frames[key]
        return found


def _is_collective(op: Any) -> bool:
    return op.type.startswith(_COLLECTIVES)
