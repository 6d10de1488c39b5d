"""What do the other workers have, and what do all do alike when each would choose for itself?"""

from __future__ import annotations

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
    rows = own[tf.newaxis]
    gather = tf.function(lambda: strategy.run(lambda: all_gather(rows)), autograph=False)
    everyone = strategy.experimental_local_results(gather())[0].numpy().tolist()
    # Each replica of a worker sends the same.
    return everyone[:: local_replicas(strategy).here]


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
