"""The unpromised names by which one trace of a replica's step becomes the step of every replica."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils
from tensorflow.python.framework import auto_control_deps_utils, ops

from tfscale.framework.collective_keys import Alignment, key_of_size, send_by_size
from tfscale.framework.hooks import expect, read
from tfscale.step_context import Slot


class NotAlikeError(Exception):
    """What is traced is the step of one replica, and of no other. No error of the user's: it is traced for each."""


_TRACING = Slot["OneTrace | None"]("one_trace")
_LAUNCHERS = {
    "_next_instance_key": (),
    "all_reduce": ("input_tensor", "control_input", "options"),
    "_all_gather": ("input_tensor", "options"),
    "all_gather": ("input_tensor", "axis", "options"),
}
# Of what draws from a state of its own: with a seed all replicas would draw the same.
_SEEDS = ("seed", "seed2")


def one_trace() -> OneTrace | None:
    """What this thread traces for several replicas at once; None where it traces, or runs, for one."""
    return _TRACING.value


class _Replica(tf.distribute.ReplicaContext):
    """The context of a replica of which only the number is not known."""

    def __init__(self, strategy: tf.distribute.Strategy, replica: int, number: tf.Tensor):
        super().__init__(strategy, replica)
        self._number = number

    @property
    def replica_id_in_sync_group(self) -> tf.Tensor:
        return self._number

    def merge_call(self, merge_fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        del merge_fn, args, kwargs
        raise NotAlikeError("the replicas meet in it")


class Keys:
    """The keys of the collectives of a step, in their order: there meet replicas for which it is traced apart."""

    def __init__(self) -> None:
        self._outer = tf.compat.v1.get_default_graph()
        self._made: dict[int, list[list[Any]]] = {}

    def of(self, peers: Sequence[Any], place: int, next_key: Callable[[Any], Any]) -> list[Any]:
        """The keys of one collective, by replica.

        Args:
            peers: What launches the collectives of each replica.
            place: The how-manieth it is that they launch.
            next_key: As TensorFlow makes one for a launcher.
        """
        made = self._made.setdefault(id(peers), [])
        if place == len(made):
            with self._outer.as_default():
                made.append([next_key(each) for each in peers])
        return made[place]


class OneTrace:
    """A step that is traced for one replica, to be called for others with what is theirs.

    Why: TensorFlow traces the step of each replica by itself, N times the same Python, into one graph, which is N times
    as large. What the trace captures of one replica (copies of variables, the tokens and keys of its collectives) can
    be told from what it captures otherwise, and is an argument: so the trace is a function, called on every device.
    Breaks first: tests/replicas/test_one_trace.py.

    Args:
        strategy: Of this process's replicas.
        replica: The index, in this process, of the one that is traced.
        first: The number of this process's first replica among all.
        copies: The handles of each variable of the strategy, by replica.
        keys: Those of the same step, whatever the rest of the replicas is traced in.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        replica: int,
        first: int,
        copies: Sequence[Sequence[Any]],
        keys: Keys,
    ):
        self.strategy = strategy
        self.replica = replica
        self.part: Any = None
        """What the replica was given, while it is traced."""
        self.sent: collections.Counter[int] = collections.Counter()
        """How many collectives were launched, by what launched them."""
        self._first = first
        self._keys = keys
        # What has an identity lives as long as this object: none is given twice.
        self._of_replicas: dict[int, Sequence[Any]] = {id(each[replica]): each for each in copies}

    def trace(self, step: Callable[[], Any], part: Any) -> None:
        """Traces `step()`, in which `part` is what `self.part` holds.

        Raises:
            NotAlikeError: When it is no other replica's step.
        """
        flat = tf.nest.flatten(part, expand_composites=True)
        self._places = [place for place, leaf in enumerate(flat) if tf.is_tensor(leaf)]
        if any(flat[place].dtype == tf.resource for place in self._places):
            raise NotAlikeError("it is given something that has a state")
        specs = [tf.TensorSpec(flat[place].shape, flat[place].dtype) for place in self._places]

        def traced(number: tf.Tensor, *tensors: tf.Tensor) -> list[tf.Tensor]:
            own = list(flat)
            for place, tensor in zip(self._places, tensors, strict=True):
                own[place] = tensor
            self.part = tf.nest.pack_sequence_as(part, own, expand_composites=True)
            with _Replica(self.strategy, self._first + self.replica, number), _TRACING.carrying(self), tf.device(None):
                self._results = step()
            leaves = tf.nest.flatten(self._results, expand_composites=True)
            return [leaf for leaf in leaves if tf.is_tensor(leaf)]

        function = tf.function(traced, autograph=False)
        self._concrete = function.get_concrete_function(tf.TensorSpec((), tf.int32), *specs)
        self._refuse_what_is_one_replicas()

    def _refuse_what_is_one_replicas(self) -> None:
        captured = self._concrete.captured_inputs
        if len(captured) + len(self._places) + 1 != len(self._concrete.inputs):
            raise NotAlikeError("it captures what is known only when it is called")
        inputs = self._concrete.inputs
        self._only_read = auto_control_deps_utils.get_read_only_resource_input_indices_graph(self._concrete.graph)
        for place, each in enumerate(captured, start=len(inputs) - len(captured)):
            is_shared = each.dtype in (tf.resource, tf.variant) and id(each) not in self._of_replicas
            if is_shared and (place not in self._only_read or each.dtype == tf.variant):
                raise NotAlikeError(f"it changes one thing of all replicas: {each}")
        definition = self._concrete.graph.as_graph_def()
        nodes = [*definition.node, *(node for each in definition.library.function for node in each.node_def)]
        for node in nodes:
            if node.device:
                raise NotAlikeError(f"{node.name!r} of type {node.op} is to run on {node.device}")
            if any(node.attr[name].i for name in _SEEDS if name in node.attr):
                raise NotAlikeError(f"{node.name!r} of type {node.op} draws by a seed")

    def next_key(self, launcher: Any, peers: Sequence[Any], next_key: Callable[[Any], Any]) -> Any:
        """The key of the next collective of the replica that is traced.

        Args:
            launcher: What launches it.
            peers: What launches those of all replicas of this process.
            next_key: As TensorFlow makes one for a launcher.
        """
        place = peers.index(launcher)
        keys = self._keys.of(peers, self.sent[id(peers)], next_key)
        self.sent[id(peers)] += 1
        tokens = [read(each, "_ordering_token").handle for each in peers]
        self._of_replicas |= {id(keys[place]): keys, id(tokens[place]): tokens}
        return keys[place]

    def own(self, copies: Sequence[tf.Variable]) -> tf.Variable:
        """Of variables of which each replica of this process has one, that of the replica that is traced."""
        handles = [each.handle for each in copies]
        self._of_replicas[id(handles[self.replica])] = handles
        return copies[self.replica]

    def call(self, replica: int, part: Any) -> Any:
        """What the step returns on a replica, for a part like the one that it was traced for."""
        flat = tf.nest.flatten(part, expand_composites=True)
        captured = [
            self._of_replicas[id(each)][replica] if id(each) in self._of_replicas else each
            for each in self._concrete.captured_inputs
        ]
        number = tf.constant(self._first + replica, tf.int32)
        outputs = self._concrete.outputs
        with tf.device(self.strategy.extended.worker_devices[replica]):
            called: Any = tf.raw_ops.StatefulPartitionedCall(
                args=[number, *(flat[place] for place in self._places), *captured],
                Tout=[each.dtype for each in outputs],
                f=self._concrete,
            )
        # What returns nothing is the operation. Those that only read the same wait for nothing.
        operation = called[0].op if outputs else called
        ops.set_int_list_attr(operation, auto_control_deps_utils.READ_ONLY_RESOURCE_INPUTS_ATTR, self._only_read)
        called = called if outputs else []
        for result, output in zip(called, outputs, strict=True):
            result.set_shape(output.shape)
        left = iter(called)
        leaves = tf.nest.flatten(self._results, expand_composites=True)
        returned = [next(left) if tf.is_tensor(leaf) else leaf for leaf in leaves]
        return tf.nest.pack_sequence_as(self._results, returned, expand_composites=True)


def launch_for_all(operations: Any) -> None:
    """Lets what launches the collectives of a strategy's replicas do so in a step that is traced once for them.

    Why: the key of a collective is captured when the step's function is called, which TensorFlow does for the outermost
    function only; and each launcher names the device of its own replica. Sizes have keys of their own: `sending_sizes`.
    Breaks first: tests/replicas/test_one_trace.py.
    """
    launchers = read(operations, "_launchers")
    kind: Any = type(launchers[0])
    alignment = Alignment(launchers)
    for name, takes in _LAUNCHERS.items():
        expect(kind, name, takes)
    for launcher in launchers:
        read(launcher, "_device")

    class Launcher(kind):
        """TensorFlow's own, but for that."""

        @property
        def _device(self) -> Any:
            return None if one_trace() is not None else vars(self)["_device"]

        def _next_instance_key(self) -> Any:
            one = one_trace()
            return key_of_size(self._own_key() if one is None else one.next_key(self, launchers, Launcher._own_key))

        def all_reduce(self, input_tensor: Any, control_input: Any = None, options: Any = None) -> Any:
            send = super().all_reduce
            return send_by_size(input_tensor, lambda vector: send(vector, control_input, options))

        def _all_gather(self, input_tensor: Any, options: Any) -> Any:
            send = super()._all_gather
            return send_by_size(input_tensor, lambda vector: send(vector, options))

        def _own_key(self) -> Any:
            alignment.align_when_called()
            return super()._next_instance_key()

    for launcher in launchers:
        launcher.__class__ = Launcher


def regroup(results: Sequence[Any]) -> Any:
    """What `strategy.run` returns where its replicas have these results.

    Why: no public way makes a value of several replicas in a graph.
    Breaks first: tests/replicas/test_one_trace.py.
    """
    return distribute_utils.regroup(tuple(results))
