"""Do all replicas still hold the same weights, bit by bit?

Each replica makes one number of its weights. The numbers travel in the reduction that every step has anyway, each in a
place of its own, so that every replica learns all of them. Nothing is computed in steps that are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact.terms import is_recording
from tfscale.replicas.agreement import gather_from_workers
from tfscale.replicas.all_reduce import all_reduce_sum, replica_id, replica_number
from tfscale.replicas.counted import is_counted
from tfscale.replicas.own_copies import one_for_each, own_of
from tfscale.replicas.owners import Fact, PreparedModel
from tfscale.replicas.replica_batch import local_replicas

# Float32 holds integers up to here, and 0 is what a replica sends that did not look.
_MODULUS = 2**24 - 1
# Large and odd, so that weights that are exchanged do not cancel.
_FACTOR = 1_000_003


class ChecksumExchange:
    """What the steps of one model exchange, once it is watched.

    Args:
        strategy: Of the model.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._replicas = local_replicas(strategy)
        with tf.device("CPU:0"):
            self.is_due = tf.Variable(False, trainable=False, name="checksums_due")
        zeros = tf.zeros([self._replicas.total])
        self._received = one_for_each(self._replicas.here, lambda: tf.Variable(zeros, trainable=False))

    def read(self) -> list[int]:
        """Returns the checksum of each replica in the last step that was looked at; 0 where it did not look."""
        return [int(value) for value in self._received[0].numpy()]

    def own_slots(self, weights: Sequence[keras.Variable]) -> tf.Tensor:
        """This replica's checksum in its place among zeros; only zeros in steps that are not due."""
        slot = tf.one_hot(replica_number(), self._replicas.total)
        return tf.cond(self.is_due, lambda: slot * checksum(weights), lambda: tf.zeros_like(slot))

    def receive(self, slots: tf.Tensor) -> None:
        """Keeps what all replicas have sent."""
        received = own_of(self._received, self._replicas.first)

        def keep() -> tf.Tensor:
            received.assign(slots)
            return tf.constant(0)

        tf.cond(self.is_due, keep, lambda: tf.constant(0))


CHECKSUMS = Fact[ChecksumExchange](PreparedModel, "checksums")
# Of which weights, and the function.
_SUMMING = Fact[tuple[tuple[int, ...], Callable[[], Any]]](
    PreparedModel, "checksums_of_replicas", lambda traced: f"{len(traced[0])} weights"
)


def watch_checksums(model: keras.Model, strategy: tf.distribute.Strategy) -> tuple[ChecksumExchange, bool]:
    """Returns the exchange of `model`, and whether it is new: then its step has to be traced anew."""
    known = CHECKSUMS.of(model)
    return (CHECKSUMS.set(model, ChecksumExchange(strategy)), True) if known is None else (known, False)


def sent_along(model: keras.Model) -> list[tf.Tensor]:
    """What this replica adds to the reduction of its step: one tensor, or none for a model that nobody watches.

    None in a step that is looked at: what was received would be one of its results, which one replica does not have.
    """
    exchange = None if is_recording() else CHECKSUMS.of(model)
    return [] if exchange is None else [exchange.own_slots(model.weights)]


def received(model: keras.Model, sums: Sequence[tf.Tensor]) -> None:
    """Takes what the reduction made of `sent_along`."""
    for slots in sums:
        CHECKSUMS[model].receive(slots)


def checksum(variables: Sequence[keras.Variable]) -> tf.Tensor:
    """One number from 1 to 2^24 - 1 of the bits of this replica's copies, as float32.

    Equal copies give equal numbers. Copies that differ give equal ones by chance, once in 16 million.
    """
    total = tf.constant(0, tf.int64)
    for variable in variables:
        total = (total * _FACTOR + _sum_of_bits(tf.convert_to_tensor(variable.value))) % _MODULUS
    # The largest of them is 2^24 - 1, and all are different in float32.
    return tf.cast(total + 1, tf.float32)


def _sum_of_bits(value: tf.Tensor) -> tf.Tensor:
    if value.dtype.size >= 4:
        words = tf.bitcast(value, tf.int32)
    elif value.dtype == tf.bool:
        words = tf.cast(value, tf.int32)
    else:
        words = tf.cast(tf.bitcast(value, tf.int16 if value.dtype.size == 2 else tf.int8), tf.int32)
    # Modulo 2^32: nothing is copied to a wider type.
    return tf.cast(tf.reduce_sum(words), tf.int64)


def checksums_of_replicas(model: keras.Model, strategy: tf.distribute.Strategy) -> list[int]:
    """The checksum of each replica's weights as they are now; to be called by every worker, outside of a step.

    Args:
        model: Prepared.
        strategy: Of the model.
    """
    weights = model.weights
    which = tuple(id(weight) for weight in weights)
    traced = _SUMMING.of(model)
    if traced is None or traced[0] != which:
        # One trace for each model: a loop may call `fit` for every epoch.
        function = tf.function(lambda: strategy.run(lambda: checksum(weights)), autograph=False)
        traced = _SUMMING.set(model, (which, function))
    own = [int(each) for each in strategy.experimental_local_results(traced[1]())]
    return [number for worker in gather_from_workers(strategy, tf.constant(own, tf.int64)) for number in worker]


def checksums_here(model: keras.Model, strategy: tf.distribute.Strategy) -> list[int]:
    """As `checksums_of_replicas`, of the replicas of one process, for which nothing has to be traced or sent.

    What replicas count by themselves is left out.

    Args:
        model: Prepared.
        strategy: Of the model.
    """
    copies = [strategy.experimental_local_results(each.value) for each in model.weights if not is_counted(each.value)]
    bits = [tf.stack([_sum_of_bits(tf.convert_to_tensor(copy)) for copy in own]) for own in zip(*copies, strict=True)]
    # Networks of a module are none of a model's own.
    return [hash(each.numpy().tobytes()) for each in bits] or [0]


def largest_differences(
    strategy: tf.distribute.Strategy, weights: Sequence[keras.Variable], reference: int
) -> list[list[float]]:
    """Compares each weight of each replica with that of one of them; to be called by every worker.

    Sends as much as an update, and is meant for weights that are known to differ.

    Args:
        strategy: Of the weights.
        weights: What to compare.
        reference: The replica to compare with.

    Returns:
        By replica and weight the largest difference, relative to the largest value of the reference; infinite for
        what is not a number on one side only.
    """

    def compare() -> tf.Tensor:
        own = [_as_float(variable) for variable in weights]
        # By a tensor, in one graph for all: what travels together goes in the order in which the graph has made it.
        is_reference = tf.constant(replica_id() == reference)
        right = all_reduce_sum([tf.where(is_reference, value, tf.zeros_like(value)) for value in own])
        found = tf.stack([_difference(*pair) for pair in zip(own, right, strict=True)])
        slot = tf.one_hot(replica_id(), int(strategy.num_replicas_in_sync))[:, None]
        [everyone] = all_reduce_sum([tf.where(slot > 0, found[None], tf.zeros_like(found)[None])])
        return everyone

    everyone: Any = tf.function(lambda: strategy.run(compare), autograph=False)()
    return strategy.experimental_local_results(everyone)[0].numpy().tolist()


def _as_float(variable: keras.Variable) -> tf.Tensor:
    value = tf.convert_to_tensor(variable.value)
    return value if value.dtype in (tf.float32, tf.float64) else tf.cast(value, tf.float32)


def _difference(own: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    both_nan = tf.logical_and(tf.math.is_nan(own), tf.math.is_nan(right))
    apart = tf.where(tf.logical_or(tf.equal(own, right), both_nan), tf.zeros_like(own), tf.abs(own - right))
    scale = tf.reduce_max(tf.where(tf.math.is_finite(right), tf.abs(right), tf.zeros_like(right)))
    # A weight may be empty.
    largest = tf.reduce_max(tf.concat([[0], tf.reshape(apart, [-1])], 0))
    relative = largest / tf.maximum(scale, tf.cast(1e-30, own.dtype))
    return tf.cast(tf.where(tf.math.is_nan(relative), tf.cast(float("inf"), own.dtype), relative), tf.float32)
