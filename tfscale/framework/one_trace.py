"""The unpromised names by which one trace of a replica's step becomes the step of every replica."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils

from tfscale.framework.hooks import read


class NotAlikeError(Exception):
    """What is traced is no replica's step but that of the one that it is traced for."""


class _Tracing(threading.local):
    one: OneTrace | None = None


_TRACING = _Tracing()


def one_trace() -> OneTrace | None:
    """What this thread traces for several replicas at once; None where it traces, or runs, for one."""
    return _TRACING.one


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
        raise NotAlikeError("replicas meet in it")


class OneTrace:
    """A step that is traced for one replica, to be called for others with what is theirs.

    Args:
        strategy: Of this process's replicas.
        replica: The index, in this process, of the one that is traced.
        first: The number of this process's first replica among all.
        copies: The handles of each variable of the strategy, by replica.
    """

    def __init__(self, strategy: tf.distribute.Strategy, replica: int, first: int, copies: Sequence[Sequence[Any]]):
        self.strategy = strategy
        self.replica = replica
        self.part: Any = None
        """What the replica was given."""
        self._first = first
        self._outer = tf.compat.v1.get_default_graph()
        self._of_replicas: dict[int, Sequence[Any]] = {id(each[replica]): each for each in copies}
        self._concrete: Any = None

    def trace(self, step: Callable[[], Any], part: Any) -> None:
        """Traces `step()`, in which `part` is what `self.part` holds."""
        flat = tf.nest.flatten(part, expand_composites=True)
        self._tensors = [place for place, leaf in enumerate(flat) if tf.is_tensor(leaf)]
        specs = [tf.TensorSpec(flat[place].shape, flat[place].dtype) for place in self._tensors]
        layout: list[Any] = []

        def traced(number: tf.Tensor, *tensors: tf.Tensor) -> list[tf.Tensor]:
            own = list(flat)
            for place, tensor in zip(self._tensors, tensors, strict=True):
                own[place] = tensor
            self.part = tf.nest.pack_sequence_as(part, own, expand_composites=True)
            with _Replica(self.strategy, self._first + self.replica, number), self._tracing(), tf.device(None):
                results = step()
            layout[:] = [results]
            return [leaf for leaf in tf.nest.flatten(results, expand_composites=True)]

        function = tf.function(traced, autograph=False)
        self._concrete = function.get_concrete_function(tf.TensorSpec((), tf.int32), *specs)
        self._layout = layout[0]

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[None]:
        outer, _TRACING.one = _TRACING.one, self
        try:
            yield
        finally:
            _TRACING.one = outer

    def keys(self, launcher: Any, peers: Sequence[Any], next_key: Callable[[Any], Any]) -> Any:
        """The key of the next collective, of which every replica gets one from outside of the step."""
        with self._outer.as_default():
            keys = [next_key(each) for each in peers]
        tokens = [each._ordering_token.handle for each in peers]
        place = peers.index(launcher)
        self._of_replicas[id(keys[place])] = keys
        self._of_replicas[id(tokens[place])] = tokens
        return keys[place]

    def call(self, replica: int, part: Any) -> Any:
        """What the step returns for a replica."""
        flat = tf.nest.flatten(part, expand_composites=True)
        captured = [self._for_replica(each, replica) for each in self._concrete.captured_inputs]
        number = tf.constant(self._first + replica)
        arguments = [number, *(flat[place] for place in self._tensors), *captured]
        outputs = self._concrete.outputs
        with tf.device(self.strategy.extended.worker_devices[replica]):
            results = tf.raw_ops.StatefulPartitionedCall(
                args=arguments, Tout=[each.dtype for each in outputs], f=self._concrete
            )
        for result, output in zip(results, outputs, strict=True):
            result.set_shape(output.shape)
        return tf.nest.pack_sequence_as(self._layout, results, expand_composites=True)

    def _for_replica(self, captured: Any, replica: int) -> Any:
        found = self._of_replicas.get(id(captured))
        if found is not None:
            return found[replica]
        if captured.dtype in (tf.resource, tf.variant):
            raise NotAlikeError(f"it uses {captured}, which is one for all replicas")
        return captured


def dress_launchers(operations: Any) -> None:
    """Lets what launches a strategy's collectives do so in a step that is traced for several replicas."""
    launchers = read(operations, "_launchers")

    def dressed(kind: Any) -> Any:
        class Launcher(kind):
            @property
            def _device(self) -> Any:
                return None if one_trace() is not None else vars(self)["_device"]

            def _next_instance_key(self) -> Any:
                one = one_trace()
                return super()._next_instance_key() if one is None else one.keys(self, launchers, kind._next_instance_key)

        return Launcher

    kind = dressed(type(launchers[0]))
    for launcher in launchers:
        launcher.__class__ = kind


def regroup(results: Sequence[Any]) -> Any:
    """What `strategy.run` returns where its replicas have these results."""
    return distribute_utils.regroup(tuple(results))
