"""How long have training steps waited for their batches?

That cannot be seen from Python, which hands over an iterator: a batch is taken inside of the function that trains. So
the clock is read there, by two operations that take some microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from tfscale.replicas.owners import Fact, PreparedModel


class InputWait:
    """The time that the training steps of one model wait for their batches, on this worker.

    Example:
        >>> import tensorflow as tf
        >>> from tfscale.training.step.input_wait import InputWait
        >>> wait, numbers = InputWait(), iter(tf.data.Dataset.range(3))
        >>> take = tf.function(lambda iterator: wait.taking(lambda: next(iterator)))
        >>> wait.seconds is None, [int(take(numbers)) for _ in range(3)], wait.seconds > 0
        (True, [0, 1, 2], True)
    """

    def __init__(self) -> None:
        self._total: tf.Variable | None = None

    @property
    def seconds(self) -> float | None:
        """Since the model was prepared; None where nothing was measured."""
        return None if self._total is None else float(self._total.numpy())

    def taking(self, take: Callable[[], Any]) -> Any:
        """Returns a batch, as `take` does; to be called where a graph is traced.

        Args:
            take: Takes the next batch, or an optional of it, by operations that end when it is there.
        """
        # Neither the graph nor a strategy's scope that one may be in reaches into another thread.
        with ThreadPoolExecutor(1) as outside:
            if not outside.submit(_can_read_clock).result():
                return take()
            if self._total is None:
                self._total = outside.submit(_on_host).result()
        began_s = tf.timestamp()
        with tf.control_dependencies([began_s]):
            batch = take()
        with tf.control_dependencies(_arrivals(batch)):
            self._total.assign_add(tf.timestamp() - began_s)
        return batch


def _arrivals(batch: Any) -> list[tf.Tensor]:
    """Tensors that are there when the batch is. A distributed optional is one in all but type."""
    if hasattr(batch, "has_value"):
        return [batch.has_value()]
    return [each for each in tf.nest.flatten(batch, expand_composites=True) if tf.is_tensor(each)]


def _can_read_clock() -> bool:
    """Whether TensorFlow lets a graph read the clock, which it does not when its operations are to be deterministic."""
    try:
        tf.timestamp()
    except tf.errors.FailedPreconditionError:
        return False
    return True


def _on_host() -> tf.Variable:
    with tf.device("CPU:0"):
        return tf.Variable(0.0, dtype=tf.float64, trainable=False, name="input_wait_s")


INPUT_WAIT = Fact[InputWait](PreparedModel, "input wait", lambda wait: f"{wait.seconds or 0.0:.3g} s")
