"""With what do metrics begin that Keras makes in the first step?

There they still hold what they were created with, since Keras reset the metrics of the epoch before there were any; or,
metrics that another model or the script itself has counted with, what that has left. Here they are met before that, and
get it back when the first step begins.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.replicas.made import made_under
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_batch import local_replicas

# TensorFlow's variables of metrics, of which each replica has counted a part since a model first used them.
_IN_USE = Fact[list["weakref.ref[Any]"]](ReplicaGroup, "metrics in use", len)


class FirstStates:
    """States of metrics that are not zero when they are made.

    Args:
        model: Prepared.
        strategy: Under whose scope they are made.
    """

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy):
        self._model = model
        self._strategy = strategy
        self._known: set[int] = set()
        self._values: list[tuple[keras.Variable, np.ndarray]] = []

    def begin(self) -> None:
        """Is called before metrics are made."""
        self._known = {id(variable) for variable in self._model.metrics_variables}

    def note(self) -> None:
        """Is called when they were made, and nothing has reset them.

        Of those with which another model has counted, each worker asks for what all have.
        """
        made = [variable for variable in self._model.metrics_variables if id(variable) not in self._known]
        in_use = _IN_USE.ensure(self._strategy, [])
        in_use[:] = [reference for reference in in_use if reference() is not None]
        used = {id(reference()) for reference in in_use}
        for variable in made:
            is_used = id(variable.value) in used
            value = np.asarray(self._counted(variable) if is_used else self._begun_or_counted(variable))
            if not is_used:
                in_use.append(weakref.ref(variable.value))
            if value.dtype.kind in "fiu" and np.any(value):
                self._values.append((variable, value))
        self.put_back()

    def put_back(self) -> list[tuple[keras.Variable, np.ndarray]]:
        """Gives each replica a part of them, as Keras's reset does: copies are added up where they are read.

        Returns:
            Those of which another worker's replica has all.
        """
        replicas = local_replicas(self._strategy)
        for variable, value in self._values:
            # Of whole numbers the first one gets all, which may be no multiple.
            parts = value / replicas.total if value.dtype.kind == "f" else np.zeros_like(value)
            for replica, copy in zip(replicas.ids, self._copies(variable), strict=True):
                copy.assign(parts if replica or value.dtype.kind == "f" else value)
        return [each for each in self._values if replicas.first and each[1].dtype.kind != "f"]

    def forget(self) -> None:
        """From now on they hold what Keras's reset makes of them."""
        self._values.clear()

    def in_first_call_of(self, function: Callable[[Any], Any], *, unless: Callable[[], bool]) -> Callable[[Any], Any]:
        """`function`, in whose first call metrics begin with what they were made with.

        Args:
            function: Runs steps.
            unless: Tells whether the metrics go on from what an interrupted run has counted.
        """

        @functools.wraps(function)
        def call(data: Any) -> Any:
            if self._values and not unless():
                self.put_back()
            try:
                return function(data)
            finally:
                self.forget()

        return call

    def _begun_or_counted(self, variable: keras.Variable) -> Any:
        """What each copy was made with, or what all hold together where a script has counted since.

        Every worker asks for what all have, and decides by that: what its own copies hold may be what they began with.
        """
        begun, copy = made_under(self._strategy).begun_with(variable.value), self._copies(variable)[0]
        if begun is None or begun.dtype.is_bool or variable.value.aggregation != tf.VariableAggregation.SUM:
            return copy
        counted = self._counted(variable)
        return begun if np.allclose(counted, begun, rtol=1e-6, atol=0.0) else counted

    def _counted(self, variable: keras.Variable) -> Any:
        with self._strategy.scope():
            return tf.convert_to_tensor(variable.value)

    def _copies(self, variable: keras.Variable) -> tuple[Any, ...]:
        return tuple(self._strategy.experimental_local_results(variable.value))
