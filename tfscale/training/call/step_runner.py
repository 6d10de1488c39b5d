"""How do `fit`, `evaluate` and `predict` run the replicas' steps?

Keras asks a model for three functions of an iterator. These run every replica's step, as many steps per call as
`steps_per_execution` says, in one `tf.function`, and return the logs of the global batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.data.peeking import PeekedBatches
from tfscale.framework.models import runs_eagerly
from tfscale.gradients.double_buffer import at_once
from tfscale.replicas.all_reduce import all_gather
from tfscale.replicas.one_trace import on_parts, own_part
from tfscale.replicas.own_share import knowing_sizes, sizes_of_parts
from tfscale.replicas.replica_batch import (
    LocalReplicas,
    ReplicaBatch,
    of_replica,
    own_parts,
    replicas_of,
    unsplit_batch,
)
from tfscale.training.call.looks import Look, Looks
from tfscale.training.call.one_batch import iterator_of_one
from tfscale.training.call.predictions import own_predictions
from tfscale.training.call.steps_per_call import ChosenCalls
from tfscale.training.call.traced import Traced
from tfscale.training.step.input_wait import INPUT_WAIT, InputWait
from tfscale.training.step.own_numbers import BegunTraces, FirstTraces

Logs = dict[str, Any]


class ReplicaSteps(NamedTuple):
    """What each replica does in a call of one step, and in a call of several. All replicas return the same tensors."""

    alone: Callable[[ReplicaBatch], Any]
    """Returns what logs are made of."""
    one_of_several: Callable[[ReplicaBatch], Any]
    """As `alone`; or returns an empty list, where there is something to do `afterwards`."""
    make_logs: Callable[[Any], Logs]
    """Makes logs of what was returned last."""
    afterwards: Callable[[], Any] | None = None
    """Returns what logs are made of, after the last step of several."""


class StepRunner:
    """Runs steps of a prepared model on all replicas of its strategy.

    Args:
        model: A prepared model, compiled.
        strategy: Its strategy.
        calls: How many steps each call takes, where `compile` leaves it to tfscale.
        as_traced: As `Traced`.
    """

    def __init__(
        self, model: keras.Model, strategy: tf.distribute.Strategy, calls: ChosenCalls, *, as_traced: bool = False
    ):
        self._as_traced = as_traced
        self._model = model
        self._strategy = strategy
        self._replicas: LocalReplicas = replicas_of(model)
        self._calls = calls
        self._begun = BegunTraces(model)
        self._device_types = [tf.DeviceSpec.from_string(each).device_type for each in strategy.extended.worker_devices]
        self._count: tuple[int, tf.Tensor] | None = None

    def logging_function(
        self, replica: ReplicaSteps, look: Look | None = None, *, times_input: bool = False
    ) -> Callable[[Any], Logs]:
        """A Keras train or test function: takes an iterator, runs `steps_per_execution` steps, returns the logs.

        Args:
            replica: What each replica does.
            look: What looks at the first batch, and at some later ones, before anything is done with them, or None.
            times_input: Whether the time is noted that its steps wait for their batches.
        """
        taking = INPUT_WAIT.ensure(self._model, InputWait()).taking if times_input else _untimed
        steps = self._steps_of(replica, taking)
        looks, kind = Looks(look, at_each=runs_eagerly(self._model)), FirstTraces()

        def lone_step(own: ReplicaBatch) -> Any:
            # Here, because each replica is traced by a thread of its own.
            with at_once():
                return replica.alone(own)

        # A batch that was taken from its iterator before is trained on like those around it.
        run_steps, run_taken = self._traced(steps, kind), self._on_batch(replica.alone, replica, kind)
        run_on_batch = self._on_batch(lone_step, replica, kind)

        def look_at(batch: Any, count: Any = None) -> None:
            if looks(batch, is_lone=count is None or int(count) == 1):
                for each in (run_steps, run_taken, run_on_batch):
                    each.forget()

        def function(iterator: Any) -> Logs:
            batch, given = None, iterator
            if isinstance(iterator, PeekedBatches):
                iterator = iterator.iterator
            if isinstance(iterator, tf.data.Iterator | tf.distribute.DistributedIterator):
                count = self._num_steps()
                if count is not None and self._calls.stays_alone(lambda: run_steps.can_trace(iterator, count)):
                    return _one_by_one(function, given, iterator, int(count))
                batch = given.take() if isinstance(given, PeekedBatches) else None
                is_due = looks.are_due()
                if is_due and batch is None:
                    batch = next(iterator, None)
                if batch is None:  # Where data have ended it fails as Keras expects it.
                    return run_steps(iterator, count)
                if is_due:
                    look_at(batch, count)
                alone = iterator_of_one(batch, iterator, self._strategy)
                logs = run_taken(batch) if alone is None else run_steps(alone, count)
                if count is None or count == 1:
                    return logs
                return _last_logs(logs, lambda: run_steps(iterator, count - 1))
            # `train_on_batch` and `test_on_batch` hand over a generator of one global batch.
            for batch in iterator:
                batch = _as_tensors(batch)
                if looks.are_due():
                    look_at(batch)
                logs = run_on_batch(batch)
            return logs

        return function

    def _steps_of(self, replica: ReplicaSteps, taking: Callable[..., Any]) -> Callable[[Any, tf.Tensor | None], Logs]:
        """What is traced of a train or test function: it takes an iterator, and the number of steps, None for one.

        Args:
            replica: What each replica does.
            taking: Calls what takes a batch, and returns it.
        """

        @tf.autograph.experimental.do_not_convert
        def one_of_several(batch: Any) -> Any:
            return self._first_replica(self._run(replica.one_of_several, batch))

        @tf.autograph.experimental.do_not_convert
        def steps(iterator: Any, count: tf.Tensor | None) -> Logs:
            if count is None:
                batch = taking(lambda: next(iterator))
                return replica.make_logs(self._first_replica(self._run(replica.alone, _as_split(iterator, batch))))
            outputs = self._several_steps(one_of_several, iterator, count, taking)
            if replica.afterwards is not None:
                outputs = self._first_replica(self._strategy.run(replica.afterwards))
            return replica.make_logs(outputs)

        return steps

    def _on_batch(self, step: Callable[[ReplicaBatch], Any], replica: ReplicaSteps, kind: FirstTraces) -> Traced:
        @tf.autograph.experimental.do_not_convert
        def run(batch: Any) -> Logs:
            return replica.make_logs(self._first_replica(self._run(step, batch)))

        return self._traced(run, kind)

    def _traced(self, function: Callable[..., Any], kind: FirstTraces) -> Traced:
        traced_as_first = functools.partial(self._begun.trace, kind)
        return Traced(
            function,
            None if runs_eagerly(self._model) else traced_as_first,
            self._device_types,
            as_traced=self._as_traced,
        )

    def _num_steps(self) -> tf.Tensor | None:
        """Steps of the next call; None for a function of one step. A Python number would be traced anew for each."""
        chosen = self._calls.current
        count = self._model.steps_per_execution if chosen is None else chosen.count
        if count == 1 and (chosen is None or chosen.begins_alone):
            return None
        if self._count is None or self._count[0] != count:
            self._count = count, tf.constant(count)
        return self._count[1]

    def _several_steps(
        self, one_step: Callable[[Any], Any], iterator: Any, steps: tf.Tensor, taking: Callable[..., Any]
    ) -> Any:
        """Up to that many steps; fewer at the end of the data, which ends the epoch as Keras expects."""
        outputs = one_step(_as_split(iterator, taking(lambda: next(iterator))))

        def take_next() -> Any:
            return taking(iterator.get_next_as_optional)

        def body(index: tf.Tensor, batch: Any, *_: tf.Tensor) -> tuple[Any, ...]:
            results = tf.nest.flatten(one_step(_as_split(iterator, batch.get_value())))
            following = tf.cond(index + 1 < steps, take_next, lambda: batch)
            return (index + 1, following, *results)

        def others() -> list[tf.Tensor]:
            loop = tf.while_loop(
                lambda index, batch, *_: tf.logical_and(index < steps, batch.has_value()),
                body,
                (tf.constant(1), take_next(), *tf.nest.flatten(outputs)),
                parallel_iterations=1,
            )
            return list(loop[2:])

        # A call of one step must not take the batch of the next one.
        results = tf.cond(steps > 1, others, lambda: tf.nest.flatten(outputs))
        return tf.nest.pack_sequence_as(outputs, results)

    def predict_function(
        self, predict: Callable[[ReplicaBatch], Any], look: Look | None = None
    ) -> Callable[[Sequence[Any]], Any]:
        """A Keras predict function: takes a list of batches, returns the predictions of all their rows in order.

        Args:
            predict: What each replica does: returns the predictions of its rows.
            look: As for `logging_function`.
        """
        looks, kind = Looks(look, at_each=runs_eagerly(self._model)), FirstTraces()
        several_workers = self._replicas.on_several_workers

        @tf.autograph.experimental.do_not_convert
        def one_step(batch: Any) -> Any:
            def replica_step(own: ReplicaBatch) -> Any:
                outputs = predict(own)
                if self._replicas.total > 1:
                    outputs = own_predictions(outputs, own)
                return tf.nest.map_structure(all_gather, outputs) if several_workers else outputs

            outputs = self._run(replica_step, batch)
            if several_workers:
                return self._first_replica(outputs)
            return tf.nest.map_structure(
                lambda value: _concat(self._strategy.experimental_local_results(value)), outputs
            )

        run_one_step = self._traced(one_step, kind)

        def looked_at(batch: Any) -> Any:
            batch = _as_tensors(batch)
            if looks.are_due() and looks(batch):
                run_one_step.forget()
            return run_one_step(batch)

        def function(batches: Sequence[Any]) -> Any:
            results = [looked_at(batch) for batch in batches]
            return tf.nest.map_structure(lambda *values: _concat(values), *results)

        return function

    def _run(self, replica_step: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """Runs a step on every replica with its rows of `batch`: a global batch, or one that was split before."""
        numbers, held = self._begun.numbers()

        def on_replica(own: Any) -> Any:
            with numbers.of_replica(held), knowing_sizes(sizes):
                return on_own_rows(replica_step, own)

        parts: Sequence[Any]
        if _is_split(batch):
            parts = [of_replica(self._strategy, batch, replica) for replica in range(self._replicas.here)]
        else:
            parts = own_parts(batch, self._replicas)
        sizes = sizes_of_parts(parts, self._replicas)
        with on_parts(parts):
            return self._strategy.run(lambda: on_replica(own_part(parts, self._replicas.first)))

    def _first_replica(self, outputs: Any) -> Any:
        """All replicas return the same sums."""
        return tf.nest.map_structure(lambda value: self._strategy.experimental_local_results(value)[0], outputs)


def _one_by_one(function: Callable[[Any], Logs], first: Any, iterator: Any, count: int) -> Logs:
    """Takes as many steps, where they were to be one call."""
    logs = function(first)
    for _ in range(count - 1):
        logs = _last_logs(logs, lambda: function(iterator))
    return logs


def _last_logs(logs: Logs, following: Callable[[], Logs]) -> Logs:
    """Of the steps that follow, if there are data for any."""
    try:
        return following()
    except (tf.errors.OutOfRangeError, StopIteration):  # A graph says it in this way, and Python in that one.
        return logs


def on_own_rows(replica_step: Callable[[ReplicaBatch], Any], own: Any) -> Any:
    """Runs a replica's step, once its rows have arrived."""
    own = own if isinstance(own, ReplicaBatch) else unsplit_batch(own)
    # Nothing of the step may run when the data have ended: an update would happen without a batch.
    arrived = [leaf for leaf in tf.nest.flatten(own, expand_composites=True) if tf.is_tensor(leaf)]
    with tf.control_dependencies([] if tf.executing_eagerly() else arrived):
        return replica_step(own._replace(data=_without_optionals(own.data)))


def _untimed(take: Callable[[], Any]) -> Any:
    return take()


def _as_split(iterator: Any, batch: Any) -> Any:
    """What TF distributed is split; on a worker with one replica it looks like any other batch."""
    if isinstance(iterator, tf.distribute.DistributedIterator) and not _is_split(batch):
        return unsplit_batch(batch)
    return batch


def _is_split(batch: Any) -> bool:
    if isinstance(batch, ReplicaBatch):
        return True
    return any(isinstance(leaf, tf.distribute.DistributedValues) for leaf in tf.nest.flatten(batch))


def _as_tensors(batch: Any) -> Any:
    """Arrays become tensors; what TensorFlow made itself stays."""
    if _is_split(batch):
        return batch

    def convert(leaf: Any) -> Any:
        is_ready = leaf is None or tf.is_tensor(leaf) or isinstance(leaf, tf.experimental.Optional)
        return leaf if is_ready else tf.convert_to_tensor(leaf)

    return keras.tree.map_structure(convert, batch)


def _without_optionals(data: Any) -> Any:
    """Keras's data adapters write a missing part of a batch as an optional."""
    return keras.tree.map_structure(lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, data)


def _concat(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], tf.SparseTensor):
        return tf.sparse.concat(axis=0, sp_inputs=list(parts))
    return tf.concat(list(parts), axis=0)
