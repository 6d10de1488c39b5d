"""The non-public names of a strategy by which tfscale answers for it. By the rules of `_tf_private.py`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf


class Answers(NamedTuple):
    """What a strategy asks before it does what TensorFlow's own does."""

    num_replicas: Callable[[int], Any]
    """Given TensorFlow's number of replicas, returns what whoever asks is told."""
    all_reduce: Callable[[Any, Callable[[Any], Any]], Any]
    """Given a replica's value and TensorFlow's way to sum it, returns what the replica gets back."""
    made: Callable[[Any], None]
    """Called with a variable that was made under the strategy's scope."""
    explaining: Callable[[], contextlib.AbstractContextManager[Any]]
    """Where a variable is made, which its chief sends to all workers: an error of TensorFlow's becomes one of ours."""
    outside_of_scope: Callable[[], contextlib.AbstractContextManager[Any]]
    """Where an optimizer of the strategy makes variables that is used outside of its scope."""
    updating: Callable[[Any], None]
    """Called with a variable that is about to be updated; may refuse it."""
    read: Callable[[Any, Callable[[], Any]], Any]
    """Given a variable and TensorFlow's way to take its value on a replica, returns what the replica gets."""
    refuse_gradient: Callable[[Any], None]
    """Called with a variable of which a gradient is asked where no replica is meant."""
    refuse_foreign_update: Callable[[Any], None]
    """Called with a variable that an optimizer of another strategy is about to update."""


@functools.cache
def _answering(
    kind: Any,
    read: Callable[[Any, Callable[[], Any]], Any],
    refuse_gradient: Callable[[Any], None],
    refuse_foreign_update: Callable[[Any], None],
) -> Any:
    """A class of distributed variables that can be read as Python numbers, and that say what cannot be done to them."""

    class Answering(kind):
        """TensorFlow's own, but for that."""

        def __float__(self) -> float:
            return float(self.numpy())

        def __int__(self) -> int:
            return int(self.numpy())

        @property
        def handle(self) -> Any:
            try:
                return super().handle
            except ValueError:
                refuse_gradient(self)
                raise

        def value(self) -> Any:
            return read(self, super().value)

        def read_value(self) -> Any:
            return read(self, super().read_value)

        def scatter_nd_update(self, indices: Any, updates: Any, name: Any = None) -> Any:
            return self.assign(tf.tensor_scatter_nd_update(self, indices, updates, name))

        def scatter_nd_add(self, indices: Any, updates: Any, name: Any = None) -> Any:
            return self.assign(tf.tensor_scatter_nd_add(self, indices, updates, name))

        def scatter_nd_sub(self, indices: Any, updates: Any, name: Any = None) -> Any:
            return self.assign(tf.tensor_scatter_nd_sub(self, indices, updates, name))

        def _dense_var_to_tensor(self, *args: Any, **kwargs: Any) -> Any:
            return read(self, functools.partial(super()._dense_var_to_tensor, *args, **kwargs))

        def _get_replica(self, replica_id: Any) -> Any:
            # Without a strategy, whoever updates a variable gives itself for the number of a replica.
            if isinstance(replica_id, tf.distribute.DistributedValues):
                refuse_foreign_update(self)
            return super()._get_replica(replica_id)

    for each in ("__name__", "__qualname__", "__module__"):
        setattr(Answering, each, getattr(kind, each))
    return Answering


def answer_for(strategy: tf.distribute.Strategy, answers: Answers) -> None:
    """Lets `answers` stand in for what `strategy` would say and do inside of a step.

    Why: Keras divides losses by `num_replicas_in_sync` wherever they are computed, every optimizer of its own adds up
    gradients through `_replica_ctx_all_reduce`, and optimizers and metrics make their variables through
    `_create_variable`, whatever holds them. All of them are met here, so that nothing is missed by a search through
    attributes.
    A variable of several replicas is no Python number to TensorFlow: `float(optimizer.learning_rate)`, which every
    variable of one device can do, is added. It has no handle outside of a replica, and no copy for an
    optimizer that was made outside of the scope: a loop by hand ends in errors that name neither.
    Breaks first: tests/training/test_step_check.py::test_answers_of_the_strategy.
    """
    base: Any = type(strategy.extended)

    class AnsweringExtended(base):
        """TensorFlow's own, but for what a step is told."""

        @property
        def _num_replicas_in_sync(self) -> Any:
            return answers.num_replicas(super()._num_replicas_in_sync)

        def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
            send = super()._replica_ctx_all_reduce
            return answers.all_reduce(value, lambda own: send(reduce_op, own, options))

        @contextlib.contextmanager
        def colocate_vars_with(self, colocate_with_variable: Any) -> Iterator[None]:
            # Optimizers make their variables beside those that they update: also in a loop outside of the scope.
            with contextlib.ExitStack() as stack:
                if isinstance(colocate_with_variable, tf.distribute.DistributedValues):
                    if not tf.distribute.has_strategy():
                        stack.enter_context(answers.outside_of_scope())
                    stack.enter_context(super().colocate_vars_with(colocate_with_variable))
                yield

        def update(self, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
            if isinstance(var, tf.distribute.DistributedValues):
                answers.updating(var)
                return super().update(var, fn, args, kwargs, group)
            # A variable that was made outside of the scope, by a loop outside of it.
            return fn(var, *args, **(kwargs or {}))

        def _create_variable(self, next_creator: Any, **kwargs: Any) -> Any:
            with answers.explaining():
                variable = super()._create_variable(next_creator, **kwargs)
            answers.made(variable)
            if isinstance(variable, tf.distribute.DistributedValues):
                kind: Any = type(variable)
                variable.__class__ = _answering(
                    kind, answers.read, answers.refuse_gradient, answers.refuse_foreign_update
                )
            return variable

    strategy.extended.__class__ = AnsweringExtended
