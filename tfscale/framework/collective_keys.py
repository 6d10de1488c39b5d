"""The unpromised names by which replicas meet in the same collective, though Ctrl-C came while they were told which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfscale.framework.hooks import read


class Alignment:
    """Lets the replicas of this process count their collectives from the same number, as each call begins.

    Why: TensorFlow counts for each replica by itself: the key of its next collective is a number that Python makes as a
    function is called, one replica after the other. Where Ctrl-C comes in between, some have counted one more, for
    good: each waits for a peer that never comes in the next collective, whoever calls it.
    Breaks first: tests/training/test_interrupt.py.

    Args:
        launchers: What launches the collectives of each replica.
    """

    def __init__(self, launchers: Sequence[Any]) -> None:
        keys, group = read(launchers[0], "_collective_keys"), read(launchers[0], "_group_key")
        self._next: dict[str, int] = read(keys, "_instance_key_table")[group]

    def align_when_called(self) -> None:
        """Has them aligned when the function is called that is traced now, before any replica has a key of it."""
        graph: Any = tf.compat.v1.get_default_graph()
        while getattr(graph, "is_control_flow_graph", False):
            graph = graph.outer_graph
        if tf.executing_eagerly() or not graph.building_function:
            return
        with graph.as_default():
            # What is captured by the same name a second time is captured once, also by a function that calls this one.
            read(graph, "capture_call_time_value")(self._align, tf.TensorSpec((), tf.int32), key=self)

    def _align(self) -> tf.Tensor:
        """Lets all count on from the one that is ahead."""
        self._next.update(dict.fromkeys(self._next, max(self._next.values())))
        return tf.constant(0)
