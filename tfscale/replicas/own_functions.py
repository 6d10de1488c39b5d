"""What becomes of a `tf.function` of the user's that a step calls?

TensorFlow traces it once for arguments of a kind, on a device, and hands that out ever after. What it takes from the
step around it, such as a replica's part of the rows, is of that step alone. So it is traced again with each step that
is traced, and where steps are run eagerly, for each number of rows. There it cannot send: replicas take turns.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.framework.graphs import DeviceName, graphs_around, naming_device
from tfscale.step_context import Slot

# The graph into which the step is traced; `_EAGER` where it is run.
_GRAPH = Slot[Any]("graph")
_EAGER = object()


class _Known:
    """Of eager steps: how often something else was found of one."""

    changes = 0


@contextlib.contextmanager
def traced_with_step(numbers: Callable[[], Hashable]) -> Iterator[None]:
    """Has TensorFlow trace anew what this thread calls meanwhile, and at most once.

    Args:
        numbers: Of a step that is run eagerly: what was traced with the same ones is taken again.
    """
    if not tf.distribute.has_strategy():
        yield
        return
    graph = _GRAPH.value
    rename: Callable[[str], DeviceName] = DeviceName
    if tf.executing_eagerly():
        graph = _EAGER
        rename = functools.partial(_name_of, (_Known.changes, numbers()))
    elif graph is None:
        graph = tf.compat.v1.get_default_graph()
    with _GRAPH.carrying(graph), naming_device(tf.distribute.get_strategy(), rename):
        yield


def is_of_own_function(graph: Any) -> bool:
    """Whether a graph is that of a function, condition or loop in a step that is run or traced now.

    What such a function is given is known once its call is there. Until then its arguments may be a replica's own rows.
    """
    step = _GRAPH.value
    if step is None or graph is step:
        return False
    return step is _EAGER or any(each is step for each in graphs_around(graph))


def trace_anew() -> None:
    """Has eager steps take nothing of what was traced before: something else is known of them."""
    _Known.changes += 1


@functools.lru_cache(maxsize=256)
def _name_of(numbers: Hashable, name: str) -> DeviceName:
    del numbers
    return DeviceName(name)


def refuse_to_send_from_function(is_eager: bool) -> None:
    """Refuses to trace what replicas send into a function that an eager step calls.

    Args:
        is_eager: Whether the step around is one of a prepared model, and is run, not traced. Of a loop by hand a lone
            replica of a process may send so.

    Raises:
        ModelError: There.
    """
    takes_turns = _GRAPH.value is _EAGER and len(tf.distribute.get_strategy().extended.worker_devices) > 1
    if (is_eager or takes_turns) and not tf.executing_eagerly():
        raise ModelError(
            "Replicas that run a step eagerly take turns, and cannot send one another anything from inside of a "
            "`tf.function`.\n"
            "Received: one that an eager step calls and that applies an optimizer, synchronizes statistics, or "
            "computes a loss with masks or weights. Take `@tf.function` off it, or `run_eagerly=True` out of "
            "`compile`; in a loop of your own, put `tf.function` around `strategy.run`."
        )
