"""What do the other workers have, and what do all do alike when each would choose for itself?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfscale.training.all_reduce import all_gather
from tfscale.training.inputs import local_replicas


def gather_from_workers(strategy: tf.distribute.Strategy, own: tf.Tensor) -> list[Any]:
    """What each worker has, by rank, in one collective; to be called by every worker.

    Args:
        strategy: Of the job.
        own: This worker's: a number, or numbers `[count]`, of the same dtype and shape on all workers.
    """
    return gathering_from_workers(strategy, tf.TensorSpec(own.shape, own.dtype))(own)


def gathering_from_workers(strategy: tf.distribute.Strategy, spec: tf.TensorSpec) -> Callable[[tf.Tensor], list[Any]]:
    """`gather_from_workers` for values of one kind, traced once however often it is called."""
    gather = tf.function(
        # A copy on the device of the replica: what comes from outside has none.
        lambda own: strategy.run(lambda: all_gather(tf.identity(own)[tf.newaxis])),
        input_signature=[spec],
        autograph=False,
    )

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
    replicas = local_replicas(strategy)
    if replicas.here == replicas.total:
        return number
    return min(gather_from_workers(strategy, tf.constant(number, tf.int64)))
