"""The unpromised names of a strategy and its variables."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.framework.collectives import type_on_the_wire
from tfscale.framework.hooks import assign, expect, read, replace
from tfscale.framework.one_trace import launch_for_all, one_trace, regroup

# What is answered, or said, here in the place of TensorFlow's own, and what that takes; None for what is no method.
_ANSWERED: dict[str, Sequence[str] | None] = {
    "_num_replicas_in_sync": None,
    "_replica_ctx_all_reduce": ("reduce_op", "value", "options"),
    "colocate_vars_with": ("colocate_with_variable",),
    "update": ("var", "fn", "args", "kwargs", "group"),
    "_create_variable": ("next_creator", "kwargs"),
    "_get_variable_creator_initial_value": ("replica_id", "device", "primary_var", "kwargs"),
    "_call_for_each_replica": ("fn", "args", "kwargs"),
    "_batch_reduce_to": ("reduce_op", "value_destination_pairs", "options"),
    "_reduce_to": ("reduce_op", "value", "destinations", "options"),
}
_SAID: dict[str, Sequence[str] | None] = {
    "handle": None,
    "assign": ("value", "use_locking", "name", "read_value"),
    "value": (),
    "read_value": (),
    "_dense_var_to_tensor": ("dtype", "name", "as_ref"),
    "_get_replica": ("replica_id",),
}


EachByItself = Callable[[Callable[[Callable[..., Any]], Callable[..., Any]]], Any]
"""Has every replica do its step, given what is to be put around that."""


class Answers(NamedTuple):
    """What a strategy asks before it does what TensorFlow's own does."""

    num_replicas: Callable[[int], Any]
    """Given TensorFlow's number of replicas, returns what whoever asks is told."""
    all_reduce: Callable[[Any, Callable[[Any], Any], Callable[[Any], Any] | None], Any]
    """Given a replica's value, TensorFlow's way to sum it, and to take the mean if that is asked for, returns what the
    replica gets back."""
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
    assign: Callable[[Any, Any, Callable[[], Any]], Any]
    """Given a variable, its new value, and TensorFlow's way to set it, does so."""
    rows_of_loop: Callable[[], Sequence[int] | None]
    """How many rows each replica of this process has in the eager step of a loop by hand; None where that is not known,
    or none is made."""
    run: Callable[[Callable[[], Any], EachByItself], Any]
    """Given what a replica is to do, and TensorFlow's way to have all do it, returns their results."""


@functools.cache
def _answering(
    kind: Any,
    read: Callable[[Any, Callable[[], Any]], Any],
    refuse_gradient: Callable[[Any], None],
    refuse_foreign_update: Callable[[Any], None],
    assign_as: Callable[[Any, Any, Callable[[], Any]], Any],
) -> Any:
    """A class of distributed variables that can be read as Python numbers, and that say what cannot be done to them."""
    for name, takes in _SAID.items():
        expect(kind, name, takes)

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

        def assign(self, value: Any, use_locking: bool = False, name: Any = None, read_value: bool = True) -> Any:
            return assign_as(self, value, lambda: super(Answering, self).assign(value, use_locking, name, read_value))

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
    Breaks first: tests/training/check/test_step_check.py::test_answers_of_the_strategy.
    """
    for name, takes in _ANSWERED.items():
        expect(type(strategy.extended), name, takes)
    base: Any = _reducing_eagerly(_sending_first_values(type(strategy.extended)), answers.rows_of_loop)

    class AnsweringExtended(base):
        """TensorFlow's own, but for what a step is told."""

        @property
        def _num_replicas_in_sync(self) -> Any:
            return answers.num_replicas(super()._num_replicas_in_sync)

        def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
            send = super()._replica_ctx_all_reduce
            if str(getattr(reduce_op, "name", reduce_op)).upper() != "MEAN":
                return answers.all_reduce(value, lambda own: send(reduce_op, own, options), None)
            sum_of = functools.partial(send, tf.distribute.ReduceOp.SUM, options=options)
            return answers.all_reduce(value, sum_of, functools.partial(send, reduce_op, options=options))

        @contextlib.contextmanager
        def colocate_vars_with(self, colocate_with_variable: Any) -> Iterator[None]:
            # Optimizers make their variables beside those that they update: also in a loop outside of the scope.
            with contextlib.ExitStack() as stack:
                if isinstance(colocate_with_variable, tf.distribute.DistributedValues):
                    if not tf.distribute.has_strategy():
                        stack.enter_context(answers.outside_of_scope())
                    stack.enter_context(super().colocate_vars_with(colocate_with_variable))
                yield

        def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
            each_by_itself = super()._call_for_each_replica
            return answers.run(
                functools.partial(fn, *args, **kwargs), lambda around: each_by_itself(around(fn), args, kwargs)
            )

        def update(self, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
            if isinstance(var, tf.distribute.DistributedValues):
                answers.updating(var)
                one = one_trace()
                if one is not None:
                    # TensorFlow would name the device of the replica that is traced.
                    return fn(var._get_replica(one.replica), *args, **(kwargs or {}))
                return super().update(var, fn, args, kwargs, group)
            # A variable that was made outside of the scope, by a loop outside of it.
            return fn(var, *args, **(kwargs or {}))

        def _create_variable(self, next_creator: Any, **kwargs: Any) -> Any:
            with answers.explaining():
                variable = super()._create_variable(next_creator, **kwargs)
            if isinstance(variable, tf.distribute.DistributedValues):
                kind: Any = type(variable)
                variable.__class__ = _answering(
                    kind, answers.read, answers.refuse_gradient, answers.refuse_foreign_update, answers.assign
                )
            answers.made(variable)
            return variable

    strategy.extended.__class__ = AnsweringExtended
    for operations in _with_launchers(strategy):
        launch_for_all(operations)


@contextlib.contextmanager
def _naming_one_for_all(value: Any) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "non-DistributedValues" not in str(error):
            raise
        raise ModelError(
            "What is added up over the replicas must be a value of each of them.\n"
            f"Received: {value}, one for all, which every replica would add once more, as to a variable with "
            "`aggregation=tf.VariableAggregation.SUM`. Count steps in a variable as it comes, without an aggregation."
        ) from error


def _reducing_eagerly(base: Any, rows_of_loop: Callable[[], Sequence[int] | None]) -> Any:
    """A class of `extended` that reduces outside of a graph as it does inside of one.

    Why: there all that replicas reduce, or assign to a variable with an aggregation, comes to the main thread by a
    `merge_call`, and past `_replica_ctx_all_reduce`. Where they sum what is one object of Python, TensorFlow hands out
    that very value: the sum of ones over three replicas is 1, in silence, and 3 in a graph. In its mean each replica
    counts as much, however many rows it has.
    Breaks first: tests/replicas/test_all_reduce.py::test_one_object_of_all_replicas,
    tests/training/step/test_eager_loops.py::test_means.
    """

    class ReducingExtended(base):
        """TensorFlow's own, but for these."""

        def _batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
            pairs = []
            for value, place in value_destination_pairs:
                own = self._of_every_replica(value)
                pairs.append((own, place if own is value else own))
            weighed = [self._by_rows(reduce_op, value, options) for value, _ in pairs]
            if all(each is not None for each in weighed):
                reduce_op = tf.distribute.ReduceOp.SUM
                pairs = [(own, place) for own, (_, place) in zip(weighed, pairs, strict=True)]
            return super()._batch_reduce_to(reduce_op, pairs, options)

        def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
            weighed = self._by_rows(reduce_op, value, options)
            if weighed is None:
                with _naming_one_for_all(value):
                    return super()._reduce_to(reduce_op, value, destinations, options)
            return super()._reduce_to(tf.distribute.ReduceOp.SUM, weighed, destinations, options)

        def _of_every_replica(self, value: Any) -> Any:
            is_one = tf.is_tensor(value) and not isinstance(value, tf.distribute.DistributedValues)
            if len(self.worker_devices) == 1 or not is_one:
                return value
            return self._on_devices([value] * len(self.worker_devices))

        def _on_devices(self, values: Sequence[Any]) -> Any:
            copies = []
            for device, value in zip(self.worker_devices, values, strict=True):
                with tf.device(device):
                    copies.append(tf.identity(value))
            return regroup(copies)

        def _by_rows(self, reduce_op: Any, value: Any, options: Any) -> Any:
            """What is to be summed in the place of a mean; None where each replica counts as much."""
            rows = rows_of_loop() if reduce_op == tf.distribute.ReduceOp.MEAN else None
            own = value.values if isinstance(value, tf.distribute.DistributedValues) else (value,)
            is_of_each = rows is not None and len(own) == len(rows) and all(map(tf.is_tensor, own))
            if rows is None or not is_of_each or not own[0].dtype.is_floating:
                return None
            total: Any = sum(rows)
            if len(rows) < super()._num_replicas_in_sync:
                counts = self._on_devices([tf.constant(float(each)) for each in rows])
                summed = super()._reduce_to(tf.distribute.ReduceOp.SUM, counts, self.worker_devices[0], options)
                total = float(self._local_results(summed)[0])
            shares = [tf.cast(each / max(total, 1), one.dtype) for each, one in zip(rows, own, strict=True)]
            # A mean over no rows is no number.
            return self._on_devices([tf.math.multiply_no_nan(*each) for each in zip(own, shares, strict=True)])

    return ReducingExtended


def _sending_first_values(base: Any) -> Any:
    """A class of `extended` of which the first worker can send what a variable begins with, whatever its type.

    Why: TensorFlow sends it by an operation that knows six types: a layer in bfloat16 could not be made on several
    workers.
    Breaks first: tests/training/test_contract_workers.py, the row one layer in bfloat16.
    """

    class SendingExtended(base):
        """TensorFlow's own, but for the type on the wire."""

        def _get_variable_creator_initial_value(
            self, replica_id: Any, device: Any, primary_var: Any, **kwargs: Any
        ) -> Any:
            begin = functools.partial(
                super()._get_variable_creator_initial_value, replica_id, device, primary_var=primary_var
            )
            is_sent = replica_id == 0 and len(self.worker_devices) < super()._num_replicas_in_sync
            kind = tf.as_dtype(kwargs.get("dtype") or tf.float32)
            wire = type_on_the_wire(kind)
            if not is_sent or wire == kind:
                return begin(**kwargs)
            given = kwargs["initial_value"]

            def sent() -> Any:
                value = given() if callable(given) else given
                # What is read from a checkpoint comes in a wrapper.
                return tf.cast(getattr(value, "wrapped_value", value), wire)

            received = begin(**{**kwargs, "initial_value": sent, "dtype": wire})
            return lambda: tf.cast(received(), kind)

    return SendingExtended


def _with_launchers(strategy: tf.distribute.Strategy) -> list[Any]:
    """What launches the collectives of a strategy's replicas."""
    found = [getattr(strategy.extended, name, None) for name in ("_collective_ops", "_cross_device_ops")]
    return list({id(each): each for each in found if hasattr(each, "_launchers")}.values())


def gather_alike(part: tf.Tensor, options: Any) -> tf.Tensor:
    """The parts of all replicas, one after the other, of which each has one of the same shape, without gradient.

    Why: TensorFlow's own way to gather is a `merge_call`, in which all replicas have to be traced beside each other: a
    step that gathers could neither be traced once for all of them, nor gather from a function of its own. What it does
    there is to have each replica launch its collectives.
    Breaks first: tests/replicas/test_all_reduce.py.

    Args:
        part: `[n, ...]` of a type that collectives carry, in a graph, in the context of one of several replicas.
        options: `tf.distribute.experimental.CommunicationOptions`, or None.
    """
    one, context = one_trace(), tf.distribute.get_replica_context()
    replica = read(context, "_replica_id") if one is None else one.replica
    launcher = read(_with_launchers(context.strategy)[0], "_launchers")[replica]
    gathered: tf.Tensor = read(launcher, "_all_gather")(part, options)
    return gathered


def update_without_merge_call(strategy: tf.distribute.Strategy) -> None:
    """Lets every replica of `strategy` run its update by itself inside `tf.function`.

    Why: under `merge_call`, tf.distribute cannot update variables inside `tf.cond` or `tf.while_loop`, which
    gradient accumulation, EMA overwriting, loss scaling and several steps per call need. TF has a replica-context
    path for XLA on GPUs and turns it on in its own tests in just this way. Eager code still needs the old path:
    there replicas run one after the other, and a blocking collective would wait for a replica not yet started.
    Breaks first: tests/training/test_contract.py, the rows accumulation, EMA and steps_per_execution.
    """
    replace(strategy.extended, "_use_merge_call", tf.executing_eagerly)


def runs_without_merge_call(strategy: tf.distribute.Strategy) -> bool:
    """Whether `update_without_merge_call` was applied to `strategy`."""
    return read(strategy.extended, "_use_merge_call") is tf.executing_eagerly


def write_locally(variable: keras.Variable) -> None:
    """Makes an assignment in a replica change that replica's copy of `variable` only, without communication.

    Why: Keras creates an optimizer's `iterations` and `learning_rate` with `only_first_replica`, so that each
    `assign` is a `merge_call` that broadcasts; that is illegal inside `tf.cond` (LossScaleOptimizer) and costs a
    copy per replica and step. All replicas assign the same value.
    Breaks first: tests/training/test_contract.py, the row LossScaleOptimizer.
    """
    assign(variable.value, "_aggregation", tf.VariableAggregation.NONE)


def is_replicated(variable: keras.Variable) -> bool:
    """Whether `variable` has one copy per replica: it was created under a strategy's scope.

    Why: `tf.distribute.DistributedValues` is public, but a Keras variable holds the TF one in `_value`, and its
    public `value` raises for a deferred variable.
    """
    value = read(variable, "_value")
    return value is None or isinstance(value, tf.distribute.DistributedValues)
