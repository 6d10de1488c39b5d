"""Which variables are a run's state, and what is their value on any number of replicas?

What every replica holds alike (weights, slots of the optimizer, statistics, states of random generators) is copied from
this process's first replica, without asking anybody. What each replica has for itself (metrics, gradients that wait to
be sent) is one sum: all replicas add up theirs before it is saved, and replica 0 takes the whole when it is restored.
So the state of N replicas is that of one, and another number can take it up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.errors import RecoveryError
from tfscale.exact.metrics import metric_results
from tfscale.gradients.double_buffer import buffer_of
from tfscale.gradients.optimizers import average_accumulators, flush_waiting
from tfscale.gradients.updaters import accumulates, held_optimizers, innermost
from tfscale.replicas.all_reduce import all_reduce_sum, replica_id


class RunVariables:
    """Every variable of a built and compiled model, its optimizers and its metrics.

    Args:
        model: A prepared model, in `fit`.
        strategy: Its strategy.
    """

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy):
        self._model = model
        self._strategy = strategy
        self._optimizers = held_optimizers(model)
        found = _unique([*model.variables, *model.metrics_variables, *_optimizer_variables(self._optimizers)])
        self._counted = [variable for variable in found if _is_counted(variable)]
        counted = set(map(id, self._counted))
        self._copied = [variable for variable in found if id(variable) not in counted]

        @tf.function(autograph=False)
        def settle() -> Any:
            return strategy.run(self._settle)

        @tf.function(autograph=False)
        def set_counted(values: list[tf.Tensor]) -> None:
            strategy.run(self._set_counted, args=(values,))

        # Kept, because a function of its own would be traced for every save.
        self._settled, self._assign_counted = settle, set_counted

    def describe(self) -> list[list[Any]]:
        """Path, shape and dtype of each array that `read` returns."""
        return [[each.path, list(each.shape), _dtype(each)] for each in (*self._copied, *self._counted)]

    def settle(self) -> list[tf.Tensor]:
        """Makes one state of all replicas' and returns the sums of what they count; every worker must call it."""
        first = self._strategy.experimental_local_results
        return [first(value)[0] for value in self._settled()]

    def read(self, sums: Sequence[tf.Tensor]) -> list[np.ndarray]:
        """Copies everything to the host; for the chief alone.

        Args:
            sums: What `settle` returned at this very step.
        """
        # The local copy: to read the variable itself may ask all workers.
        local = self._strategy.experimental_local_results
        return [np.asarray(local(each.value)[0]) for each in self._copied] + [np.asarray(value) for value in sums]

    def assign(self, arrays: Sequence[np.ndarray]) -> None:
        """Gives every replica the state that `read` returned."""
        with self._strategy.scope():
            for variable, array in zip(self._copied, arrays, strict=False):
                variable.assign(array)
        self._assign_counted([tf.constant(array) for array in arrays[len(self._copied) :]])
        if self._strategy.num_replicas_in_sync == 1:
            # What several replicas have kept for their next step, one has no next step for.
            for optimizer in self._optimizers:
                flush_waiting(optimizer)

    def logs(self, arrays: Sequence[np.ndarray]) -> dict[str, float]:
        """Returns what Keras would log of a step with these values of the metrics."""
        by_id = {
            id(variable): tf.constant(array)
            for variable, array in zip((*self._copied, *self._counted), arrays, strict=True)
        }
        results = metric_results(self._model, [by_id[id(each)] for each in self._model.metrics_variables])
        return {name: float(value) for name, value in results.items()}

    def check(self, saved: Sequence[Sequence[Any]], where: str) -> None:
        """Refuses the state of another model.

        Args:
            saved: What `describe` returned when it was saved.
            where: The file, for the message.

        Raises:
            RecoveryError: Naming the first variable that is not the same.
        """
        own = self.describe()
        for index in range(max(len(own), len(saved))):
            mine = own[index] if index < len(own) else None
            theirs = list(saved[index]) if index < len(saved) else None
            if mine is None or theirs is None or _comparable(mine) != _comparable(theirs):
                raise RecoveryError(
                    "A checkpoint must be one of this model, with this optimizer and these metrics.\n"
                    f"Received: {where}, whose variable {index} is {_show(theirs)}; here it is {_show(mine)}. "
                    "Give this run a directory of its own, or the model that was saved."
                )

    def _settle(self) -> list[tf.Tensor]:
        for optimizer in self._optimizers:
            if accumulates(optimizer):
                average_accumulators(optimizer)
        return all_reduce_sum([tf.convert_to_tensor(variable.value) for variable in self._counted])

    def _set_counted(self, values: Sequence[tf.Tensor]) -> None:
        for variable, value in zip(self._counted, values, strict=True):
            variable.assign(value if replica_id() == 0 else tf.zeros_like(value))


def _optimizer_variables(optimizers: Iterable[keras.optimizers.Optimizer]) -> list[keras.Variable]:
    found: list[keras.Variable] = []
    for optimizer in optimizers:
        found += [*innermost(optimizer).variables, *optimizer.variables]
        for inner in getattr(optimizer, "optimizers", ()):
            found += inner.variables
        buffer = buffer_of(optimizer)
        found += [] if buffer is None else buffer.variables
    return found


def _unique(variables: Iterable[keras.Variable]) -> list[keras.Variable]:
    return list({id(variable): variable for variable in variables}.values())


def _is_counted(variable: keras.Variable) -> bool:
    """Whether each replica counts for itself, to be added up when it is read."""
    return getattr(variable.value, "synchronization", None) == tf.VariableSynchronization.ON_READ


def _dtype(variable: keras.Variable) -> str:
    return str(keras.backend.standardize_dtype(variable.dtype))


def _comparable(described: Sequence[Any]) -> tuple[Any, ...]:
    """Without the numbers that Keras appends to names which a process has used before."""
    path, shape, dtype = described
    return re.sub(r"_\d+(?=/|_|$)", "", path), tuple(shape), dtype


def _show(described: Sequence[Any] | None) -> str:
    if described is None:
        return "missing"
    path, shape, dtype = described
    return f"{path!r} of shape {tuple(shape)} and type {dtype}"
