"""How is a function of Keras's traced, and made ready to run?

TensorFlow optimises the graph of all replicas of a process as a whole, before its first call: the time grows with their
number, and is most of the first step of many replicas. What it is worth depends on the devices: GPUs get the layouts of
their convolutions from it; a step of a large model on CPUs takes as long without.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfscale.framework.graphs import graph_of_function, without_graph_optimizer
from tfscale.replicas.undisturbed import undisturbed

_log = logging.getLogger(__name__)
# Half a millisecond each; below, a user hardly notices, and of small steps TensorFlow saves a twentieth.
_MOST_OPERATIONS = 8000
_CALLS = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
}


def leaves_graph_alone(num_operations: int, device_types: Sequence[str]) -> bool:
    """Whether TensorFlow runs a step as it was traced.

    Args:
        num_operations: Of the step of all replicas of this process.
        device_types: Of each of these replicas, `"CPU"` or `"GPU"`.

    Example:
        >>> from tfscale.training.call.traced import leaves_graph_alone
        >>> [leaves_graph_alone(20_000, kinds) for kinds in (["CPU"], ["CPU"] * 8, ["GPU"] * 8)]
        [False, True, False]
        >>> leaves_graph_alone(1_000, ["CPU"] * 8)
        False
    """
    return _are_several_cpus(device_types) and num_operations > _MOST_OPERATIONS


def _are_several_cpus(device_types: Sequence[str]) -> bool:
    return len(device_types) > 1 and set(device_types) == {"CPU"}


def count_operations(graph: Any) -> int:
    """Counts the operations of a graph, those of the functions that it calls as often as it calls them.

    Args:
        graph: A `tf.Graph`.

    Example:
        >>> import tensorflow as tf
        >>> from tfscale.training.call.traced import count_operations
        >>> double = tf.function(lambda x: x + x)
        >>> count_operations(double.get_concrete_function(tf.constant(1.0)).graph)
        3
        >>> four_times = tf.function(lambda x: double(double(x)))
        >>> count_operations(four_times.get_concrete_function(tf.constant(1.0)).graph)
        10
    """
    known: dict[str, int] = {}

    def count(graph: Any) -> int:
        return 0 if graph is None else sum(1 + inside(graph, op) for op in graph.get_operations())

    def inside(graph: Any, op: tf.Operation) -> int:
        total = 0
        for attribute in _CALLS.get(op.type, ()):
            name = op.get_attr(attribute).name
            if name not in known:
                known[name] = count(graph_of_function(graph, name))
            total += known[name]
        return total

    return count(graph)


class HeldTrace:
    """The trace that goes with an iterator: whoever holds it need not look it up for each of its batches.

    To find it TensorFlow describes the types of all arguments, of what is captured and of what is around the call: a
    quarter of the host's part of a small step on two replicas.
    """

    def __init__(self) -> None:
        # Iterators are compared by identity, which another one may have later: so a weak reference.
        self._iterator: Callable[[], Any] = lambda: None
        self._traces: dict[bool, Any] = {}

    def function(self, run: Any, args: Sequence[Any]) -> Any:
        """Returns what to call in the place of `run`, which was made by `tf.function`.

        Args:
            run: What would look for the trace.
            args: An iterator, and a number of steps, as a tensor or None; of all others nothing is held.
        """
        if not isinstance(args[0], tf.data.Iterator | tf.distribute.DistributedIterator):
            return run
        if tf.config.functions_run_eagerly():
            return run
        # Of a number, whichever it is, there is one trace.
        has_count = args[1] is not None
        if self._iterator() is not args[0]:
            # It may be the only batch, and the first call of all may have more to do than the others.
            self._iterator, self._traces = weakref.ref(args[0]), {has_count: None}
            return run
        if self._traces.get(has_count) is None:
            if has_count not in self._traces:
                self._traces[has_count] = None
                return run
            self._traces[has_count] = run.get_concrete_function(*args)
        return self._traces[has_count]


class Traced:
    """A function that is traced, as often as something else is known of its steps; or run as it is.

    Args:
        function: What is traced.
        as_first: Is entered with the number of traces before each; None for a function that is run as it is.
        device_types: Of the replicas of this process.
        as_traced: Whether TensorFlow is to run it as it was traced, whatever it would save: what it optimises depends
            on everything around an operation, and so do the last bits of what that computes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        as_first: Callable[[int], contextlib.AbstractContextManager[None]] | None,
        device_types: Sequence[str],
        *,
        as_traced: bool = False,
    ):
        self._as_traced = as_traced
        self._function = function
        self._as_first = as_first
        self._device_types = device_types
        # Known when it is traced, and the same for all its traces: each setting is a function of its own to TensorFlow.
        self._leaves_alone: bool | None = None
        self._run: Any = None
        self.forget()

    def __call__(self, *args: Any) -> Any:
        """Runs it, or a trace of it for arguments like these."""
        if self._leaves_alone is None:
            concrete = self._run.get_concrete_function(*args)
            self._leaves_alone = leaves_graph_alone(count_operations(concrete.graph), self._device_types)
        run = self._run if self._as_first is None else self._held.function(self._run, args)
        with without_graph_optimizer() if self._leaves_alone else contextlib.nullcontext():
            return run(*args)

    def can_trace(self, *args: Any) -> bool:
        """Whether there can be a trace for arguments like these, which is made."""
        try:
            self._run.get_concrete_function(*args)
        # Of any step that is good for one, and whatever it may be: it is run as before.
        except Exception as error:
            _log.info("a call of several steps cannot be traced: %s: %s", type(error).__name__, error)
            return False
        return True

    def forget(self) -> None:
        """Has it traced anew."""
        self._held = HeldTrace()
        if self._as_first is None:
            # Replicas take turns: the first would have made a step that the others have not.
            self._run, self._leaves_alone = undisturbed()(self._function), False
            return
        as_first, indices = self._as_first, itertools.count()

        @tf.autograph.experimental.do_not_convert
        def traced(*args: Any) -> Any:
            with as_first(next(indices)):
                return self._function(*args)

        self._run = tf.function(traced, reduce_retracing=True)
        self._leaves_alone = None if _are_several_cpus(self._device_types) and not self._as_traced else self._as_traced
