"""What may a tensor of a traced step be on another replica?

Walks the graph of a step, and those of the conditions, loops and functions in it, backwards from a tensor: whatever was
made of a replica's own rows, of numbers it drew or of its own counts may be another one elsewhere. What was sent to
all, variables and constants are equal.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.framework.graphs import captured_from_outside, graph_of_function
from tfscale.replicas.graph_walk import SHAPES, compares_with_itself, operations_behind
from tfscale.replicas.made import made_under
from tfscale.replicas.marks import EQUAL, OWN, SEED_OF_ALL, marked
from tfscale.replicas.own_functions import is_of_own_function

LOOPS = frozenset(("While", "StatelessWhile"))
_CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
# What each of them calls, by the names of its attributes.
_BODIES = {
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
    **dict.fromkeys(LOOPS, ("cond", "body")),
    **dict.fromkeys(_CALLS, ("f",)),
}
_COLLECTIVES = ("Collective", "NcclAllReduce")
_HANDLES = frozenset((tf.resource, tf.variant))
# Whatever else has a state may be a replica's own: what comes next of an iterator, a random number.
_READERS = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarHandleOp", "VarIsInitializedOp"))
# How many results they have depends on the values that they are given.
_COUNT_VALUES = frozenset(("DynamicPartition", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "Where"))
_DRAWS = ("StatelessRandom", "StatelessTruncated", "StatelessParameterized", "StatelessMultinomial", "StatelessShuffle")


class Frame(NamedTuple):
    """A graph, and the operation of the graph around it that calls it."""

    graph: Any
    call: Any = None
    outer: Frame | None = None


# A graph, the call of it, an operation and which of its results, by identities and names.
_Place = tuple[int, int, str, int]
_Behind = Callable[[Frame, Any], "list[tuple[Frame, Any]] | None"]


class ReplicaWalk:
    """Searches the graphs of one trace, inwards and outwards.

    Args:
        strategy: That of the trace.
        are_alike: Whether even variables whose copies are added up or averaged where they are read are equal before.
        counts_values: Whether how many rows a mask leaves is made of the numbers in them, and not as their number is.
    """

    def __init__(self, strategy: tf.distribute.Strategy, *, are_alike: bool = False, counts_values: bool = False):
        self._counts_values = counts_values
        self._differing_variables = {
            id(copy.handle)
            for variable in (() if are_alike else made_under(strategy).variables)
            if is_read_together(variable)
            for copy in strategy.experimental_local_results(variable)
        }
        # By what they are of, which they keep alive: its identity is not given to anything else.
        self._frames: dict[tuple[int, str, str], Any] = {}
        # What was found to be equal, by either question, so that no part of a step is searched for each of its numbers.
        self._equal: set[_Place] = set()
        self._equal_by_rows: set[_Place] = set()
        self._sends: dict[int, tuple[Any, collections.Counter[str]]] = {}
        self._straight: dict[int, Any] = {}
        self._captures: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._marked: dict[tuple[int, str], tuple[Any, set[int]]] = {}

    def operations(
        self, frame: Frame, first: int = 0, decisions: Sequence[tuple[Frame, Any]] = ()
    ) -> Iterator[tuple[Any, Frame, Sequence[tuple[Frame, Any]]]]:
        """All operations, from one on, in the order of their making; with the frames and decisions they are in."""
        for op in frame.graph.get_operations()[first:]:
            yield op, frame, decisions
            for body in self._bodies(op, frame).values():
                more = () if op.type in _CALLS else (self.decision_of(op, frame),)
                yield from self.operations(body, decisions=(*decisions, *more))

    def bodies(self, op: Any, frame: Frame) -> list[Frame]:
        """The conditions, loops and functions that an operation runs."""
        return list(self._bodies(op, frame).values())

    def body_of(self, loop: Any, frame: Frame) -> Frame | None:
        """What an operation that is a loop runs in each turn; None where that is not known."""
        return self._bodies(loop, frame).get("body")

    def eager_tensor(self, frame: Frame, tensor: Any) -> Any:
        """What stands behind a handle of a variable, outside of all graphs; None where that is not known."""
        while tf.is_symbolic_tensor(tensor):
            if tensor.op.type != "Placeholder":
                return None
            if frame.outer is not None:
                ((frame, tensor), *_) = self.behind_argument(frame, tensor) or [(frame, None)]
                continue
            tensor = self._captured(frame.graph).get(tensor.op.name)
            if tf.is_symbolic_tensor(tensor):
                frame = Frame(tensor.graph)
        return tensor

    def sent_by_device(self, frame: Frame, first: int = 0) -> collections.Counter[str]:
        """How many collectives there are on each device, from an operation on, in what it calls as well."""
        if not first and id(frame.graph) in self._sends:
            return self._sends[id(frame.graph)][1]
        sent = collections.Counter[str]()
        for op in frame.graph.get_operations()[first:]:
            sent[op.device] += is_collective(op)
            for body in self._bodies(op, frame).values():
                sent.update(self.sent_by_device(body))
        sent = +sent
        if not first:
            self._sends[id(frame.graph)] = frame.graph, sent
        return sent

    def branchings(self, frame: Frame, first: int = 0) -> Iterator[tuple[Any, Frame]]:
        """Every condition and loop in which something is sent, from an operation on, and the frame it is in."""
        if id(frame.graph) in self._straight:
            return
        is_straight = True
        for op in frame.graph.get_operations()[first:]:
            bodies = [body for body in self._bodies(op, frame).values() if self.sent_by_device(body)]
            if bodies and op.type not in _CALLS:
                is_straight = False
                yield op, frame
            for body in bodies:
                yield from self.branchings(body)
                is_straight = is_straight and id(body.graph) in self._straight
        if is_straight and not first:
            # One function may be called for every replica.
            self._straight[id(frame.graph)] = frame.graph

    def decision_of(self, op: Any, frame: Frame) -> tuple[Frame, Any]:
        """The tensor by which a condition is chosen, or a loop goes on."""
        if op.type in LOOPS:
            condition = self._bodies(op, frame)["cond"]
            return condition, condition.graph.outputs[0]
        return frame, op.inputs[0]

    def may_differ(self, frame: Frame, tensor: Any) -> bool:
        """Whether a tensor may have another value on another replica."""
        return self._may_differ(frame, tensor, self._behind, self._equal)

    def may_differ_by_rows(self, frame: Frame, tensor: Any) -> bool:
        """Whether it may because the numbers in the rows do, and not for how many they are, or by what is drawn."""
        return self._may_differ(frame, tensor, self._rows_behind, self._equal_by_rows)

    def _may_differ(self, frame: Frame, tensor: Any, behind_of: _Behind, equal: set[_Place]) -> bool:
        left, seen = [(frame, tensor)], set[_Place]()
        while left:
            frame, tensor = left.pop()
            place = id(frame.graph), id(frame.call), tensor.op.name, tensor.value_index
            if place in seen or place in equal:
                continue
            seen.add(place)
            if self._is_marked(frame, tensor, EQUAL):
                continue
            behind = behind_of(frame, tensor)
            if behind is None:
                return True
            left += behind
        equal |= seen
        return False

    def _is_marked(self, frame: Frame, tensor: Any, name: str) -> bool:
        key = id(frame.graph), name
        if key not in self._marked:
            self._marked[key] = frame.graph, marked(frame.graph, name)
        return id(tensor) in self._marked[key][1]

    def _behind(self, frame: Frame, tensor: Any) -> list[tuple[Frame, Any]] | None:
        """Of what a tensor is made; nothing if it is equal on all replicas, None if it is a replica's own."""
        op = tensor.op
        if self._is_marked(frame, tensor, OWN):
            return None
        if op.type == "Placeholder":
            return self.behind_argument(frame, tensor)
        if compares_with_itself(op):
            return []
        if is_collective(op) or op.type in _READERS:
            # Whose inputs are handles of variables, equal or not.
            return [(frame, each) for each in op.inputs if each.dtype in _HANDLES]
        bodies = self._bodies(op, frame)
        if bodies:
            index = tensor.value_index
            made = [(body, body.graph.outputs[index]) for name, body in bodies.items() if name != "cond"]
            if op.type in LOOPS:
                made.append((frame, op.inputs[index]))
            return made if op.type in _CALLS else [*made, self.decision_of(op, frame)]
        if op.type == "IdentityN":
            # Of a gradient of one's own: results beside arguments.
            return [(frame, op.inputs[tensor.value_index])]
        if op.op_def.is_stateful or (op.type.startswith(_DRAWS) and not _is_seeded_alike(op)):
            return None
        return [(frame, each) for each in op.inputs]

    def _rows_behind(self, frame: Frame, tensor: Any) -> list[tuple[Frame, Any]] | None:
        """As `_behind`, where what is one replica's own is so by the numbers in its rows, or comes of other tensors."""
        if self._is_marked(frame, tensor, OWN):
            # A number of rows, or which is the first, stands beside them.
            return [] if tensor.shape.rank == 0 else None
        if tensor.op.type in SHAPES:
            return [(frame, each) for each in _values_counted(tensor.op.inputs)] if self._counts_values else []
        behind = self._behind(frame, tensor)
        if behind is not None:
            return behind
        return [(frame, each) for each in tensor.op.inputs if each.dtype not in _HANDLES]

    def behind_argument(self, frame: Frame, tensor: Any) -> list[tuple[Frame, Any]] | None:
        """What stands behind a placeholder; None if that is one replica's own."""
        if frame.outer is not None:
            index = [each.op.name for each in frame.graph.inputs].index(tensor.op.name)
            if frame.call.type not in LOOPS:
                return [(frame.outer, frame.call.inputs[index + (frame.call.type not in _CALLS)])]
            body = self._bodies(frame.call, frame.outer)["body"]
            return [(frame.outer, frame.call.inputs[index]), (body, body.graph.outputs[index])]
        captured = self._captured(frame.graph)
        if tensor.op.name not in captured:
            # An argument of the function around `strategy.run`, or a loop variable there: of all its replicas.
            return None if is_of_own_function(frame.graph) else []
        outside = captured[tensor.op.name]
        if tf.is_symbolic_tensor(outside):
            return [(Frame(outside.graph), outside)]
        return None if id(outside) in self._differing_variables else []

    def _captured(self, graph: Any) -> dict[str, Any]:
        if id(graph) not in self._captures:
            self._captures[id(graph)] = graph, captured_from_outside(graph)
        return self._captures[id(graph)][1]

    def _bodies(self, op: Any, frame: Frame) -> dict[str, Frame]:
        """The functions that an operation calls, by the names or numbers of its branches."""
        found = {}
        for attribute in _BODIES.get(op.type, ()):
            functions = op.get_attr(attribute)
            for number, function in enumerate(functions if isinstance(functions, list) else [functions]):
                name = f"{attribute}{number or ''}"
                key = id(frame.graph), op.name, name
                if key not in self._frames:
                    graph = graph_of_function(frame.graph, function.name)
                    self._frames[key] = None if graph is None else Frame(graph, op, frame)
                if self._frames[key] is not None:
                    found[name] = self._frames[key]
        return found


def _is_seeded_alike(op: Any) -> bool:
    """Whether a draw has a seed of Keras's that is the same on all replicas."""
    seeds = marked(op.graph, SEED_OF_ALL)
    behind = operations_behind(list(op.inputs), through_shapes=False) if seeds else ()
    return any(id(output) in seeds for each in behind for output in each.outputs)


def _values_counted(tensors: Sequence[Any]) -> list[Any]:
    """Of which values it depends how long tensors are, where their shapes do not say it."""
    found, left, seen = [], list(tensors), set[str]()
    while left:
        tensor = left.pop()
        op = tensor.op
        if op.name in seen or tensor.shape.is_fully_defined():
            continue
        seen.add(op.name)
        if op.type in _COUNT_VALUES:
            found += op.inputs
        elif "Segment" in op.type:
            # There are as many segments as the last of them says, or their number; of what is in them, only how wide.
            left += op.inputs[-1:]
        else:
            # Of what is gathered there is as much as was asked for.
            left += op.inputs[1:2] if op.type.startswith("Gather") else op.inputs
    return found


def is_collective(op: Any) -> bool:
    """Whether an operation sends something to other replicas."""
    return op.type.startswith(_COLLECTIVES)


def only_reads(op: Any) -> bool:
    """Whether an operation with a state changes nothing that others see: it reads a variable."""
    return op.type in _READERS or op.type == "Placeholder"


def is_read_together(variable: Any) -> bool:
    """Whether what its copies hold is added up or averaged where it is read."""
    return bool(getattr(variable, "synchronization", None) == tf.VariableSynchronization.ON_READ)
