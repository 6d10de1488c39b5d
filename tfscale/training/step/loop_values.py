"""What does a function of a loop by hand keep in Python?

`strategy.run` calls it for each replica, where one device calls it once: all of them begin with the same counters and
draw the same numbers of NumPy, and those of one are left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.training.step.own_numbers import PythonValues
from tfscale.training.step.reached import reached_from


class LoopValues:
    """Those of one call of `strategy.run`.

    Args:
        strategy: Whose replicas run it.
        function: As given to it.

    Raises:
        ModelError: When it takes from an iterator.
    """

    def __init__(self, strategy: tf.distribute.Strategy, function: Any):
        self._values = PythonValues(reached_from([function]))
        self._held = self._values.held()
        self._left = list[dict[str, np.ndarray]]()
        self._known, self._symbols = {*self._values.holding_symbols()}, set[str]()
        self._are_several = strategy.num_replicas_in_sync > 1
        if self._values.iterators and (self._are_several or not tf.executing_eagerly()):
            raise ModelError(
                "A function of `strategy.run` must not take from an iterator: each replica would get what comes next, "
                "and one device one thing for all rows.\n"
                f"Received: {', '.join(self._values.iterators)}. Take from it outside, and give what it gives as an "
                "argument."
            )

    def kept_by(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """A step that each replica begins with the same values.

        Args:
            step: What is to be run in the place of the function.
        """

        @tf.autograph.experimental.do_not_convert
        def on_replica(*args: Any, **kwargs: Any) -> Any:
            with self._values.of_replica(self._held):
                results = step(*args, **kwargs)
                self._left.append({**self._values.read(), **self._values.read_containers()})
                # Those of one replica would be left, of which nobody knows what they are.
                self._symbols |= {*self._values.holding_symbols()} - self._known
                return results

        return on_replica

    def left_by(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """A call that leaves them as they are.

        Args:
            call: Runs the function.
        """

        def run() -> Any:
            with self._values.unchanged():
                return call()

        return run

    def check(self) -> None:
        """Checks that all replicas have left the same.

        Raises:
            ModelError: When one device could not have left that.
        """
        first, *others = self._left or [{}]
        apart = {name for other in others for name, value in first.items() if not _are_equal(value, other.get(name))}
        if self._are_several:
            apart |= self._symbols
        if apart:
            raise ModelError(
                "What a function of `strategy.run` keeps in Python must be the same on all replicas: one device keeps "
                "one value of all rows.\n"
                f"Received: {', '.join(sorted(apart))}. Return it from the function, and reduce it over the replicas "
                "(`strategy.reduce`), or update a keras.metrics object with it."
            )


def _are_equal(value: np.ndarray, other: np.ndarray | None) -> bool:
    return other is not None and np.array_equal(value, other, equal_nan=True)
