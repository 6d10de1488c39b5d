"""What do the other workers have, and what do all do alike when each would choose for itself?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfscale.replicas.all_reduce import all_gather, replica_id
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_batch import local_replicas

# The functions that gather values of one kind from each worker: traced anew, each took 60 ms (2 workers on 2 cores).
GATHERS = Fact[dict[Any, Callable[[tf.Tensor], list[Any]]]](
    ReplicaGroup, "gathers", lambda kinds: f"{len(kinds)} kinds"
)


def gather_from_workers(strategy: tf.distribute.Strategy, own: tf.Tensor) -> list[Any]:
    """What each worker has, by rank, in one collective; to be called by every worker.

    Args:
        strategy: Of the job.
        own: This worker's: a number, or numbers `[count]`, of the same dtype and shape on all workers.
    """
    gathers = GATHERS.of(strategy)
    if gathers is None:
        gathers = GATHERS.set(strategy, {})
    kind = (own.dtype, *own.shape)
    if kind not in gathers:
        gathers[kind] = _gathering(strategy, tf.TensorSpec(own.shape, own.dtype))
    return gathers[kind](own)


def gather_number(strategy: tf.distribute.Strategy, number: int) -> list[int]:
    """Each worker's number, by rank, in one collective; to be called by every worker."""
    if not local_replicas(strategy).on_several_workers:
        return [number]
    return gather_from_workers(strategy, tf.constant(number, tf.int64))


def _gathering(strategy: tf.distribute.Strategy, spec: tf.TensorSpec) -> Callable[[tf.Tensor], list[Any]]:
    """`gather_from_workers` for values of one kind."""
    # One trace each: TensorFlow would warn of a function that is "retraced" after five of them.
    gather = tf.function(
        # A copy on the device of the replica: what comes from outside has none.
        lambda own: strategy.run(lambda: all_gather(tf.identity(own)[tf.newaxis])),
        autograph=False,
    ).get_concrete_function(spec)

    def gathered(own: tf.Tensor) -> list[Any]:
        everyone = strategy.experimental_local_results(gather(own))[0].numpy().tolist()
        # Each replica of a worker sends the same.
        return everyone[:: local_replicas(strategy).here]

    return gathered


def least_of_workers(strategy: tf.distribute.Strategy, number: int) -> int:
    """The least of the workers' numbers; to be called by every worker.

    Args:
        strategy: Of the job.
        number: This worker's.
    """
    return min(gather_number(strategy, number))


def worker_unlike_chief(strategy: tf.distribute.Strategy, number: int) -> int | None:
    """The first worker with another number than the chief's; None where all have one. To be called by every worker."""
    chief, *others = gather_number(strategy, number)
    return next((rank for rank, each in enumerate(others, 1) if each != chief), None)


def agree_with_chief(strategy: tf.distribute.Strategy, numbers: list[int]) -> list[int]:
    """What the chief has found, for all workers; to be called by every worker with as many numbers."""
    if not local_replicas(strategy).on_several_workers or not numbers:
        return numbers
    found: list[int] = gather_from_workers(strategy, tf.constant(numbers, tf.int64))[0]
    return found


def any_of_workers(strategy: tf.distribute.Strategy, own: bool) -> bool:
    """Whether it is so on any worker; to be called by every worker."""
    return any(gather_number(strategy, int(own)))


def first_of_workers(strategy: tf.distribute.Strategy, message: str) -> str:
    """The first text that is not empty, by rank, for all workers; to be called by every worker."""
    return next(filter(None, texts_of_workers(strategy, message)), "")


def texts_of_workers(strategy: tf.distribute.Strategy, text: str) -> list[str]:
    """Each worker's text, by rank, as far as `LONGEST_TEXT`; to be called by every worker."""
    if not local_replicas(strategy).on_several_workers:
        return [text]
    own = list(text.encode())[:LONGEST_TEXT]
    # As a rule nobody has anything to say: the lengths alone are 8 bytes from each, texts 32,000.
    lengths = gather_number(strategy, len(own))
    if not any(lengths):
        return [""] * len(lengths)
    padded = tf.constant([*own, *[0] * (max(lengths) - len(own))], tf.int64)
    # Of a length that will hardly come again.
    everyone = _gathering(strategy, tf.TensorSpec(padded.shape, padded.dtype))(padded)
    return [bytes(number for number in each if number).decode(errors="replace") for each in everyone]


LONGEST_TEXT = 4000
"""Bytes of a text that goes to all workers."""


def gather_rows_of_workers(strategy: tf.distribute.Strategy, rows: Any) -> Any:
    """The rows of all workers, in order of rank; `rows` themselves where there is one.

    Args:
        strategy: Of the job.
        rows: Structure of tensors `[rows, ...]`, ragged and sparse ones among them; any number of rows, but at least
            one.
    """
    replicas = local_replicas(strategy)
    if not replicas.on_several_workers:
        return rows

    def gather() -> list[Any]:
        # Each replica of a worker has the worker's rows: all but the first send none.
        is_first = replica_id() == replicas.first
        rank = replicas.first // replicas.here
        return [_rows_of_all(leaf, rank, is_sent=is_first) for leaf in tf.nest.flatten(rows)]

    everyone: Any = tf.function(lambda: strategy.run(gather), autograph=False).get_concrete_function()()
    return tf.nest.pack_sequence_as(rows, [strategy.experimental_local_results(each)[0] for each in everyone])


def _rows_of_all(leaf: Any, rank: int, *, is_sent: bool) -> Any:
    """The rows of all workers, of which one replica each sends some."""

    def gathered(tensor: Any) -> Any:
        return all_gather(tf.identity(tensor) if is_sent else tensor[:0])

    if isinstance(leaf, tf.RaggedTensor):
        lengths = [gathered(each) for each in leaf.nested_row_lengths()]
        return tf.RaggedTensor.from_nested_row_lengths(gathered(leaf.flat_values), lengths, validate=False)
    if isinstance(leaf, tf.SparseTensor):
        shapes = gathered(leaf.dense_shape[tf.newaxis])
        first = tf.pad(tf.reduce_sum(shapes[:rank, :1], 0), [[0, leaf.shape.rank - 1]])
        shape = tf.concat([tf.reduce_sum(shapes[:, :1], 0), tf.reduce_max(shapes[:, 1:], 0)], 0)
        return tf.SparseTensor(gathered(leaf.indices + first), gathered(leaf.values), shape)
    return gathered(leaf)
