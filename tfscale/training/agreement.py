"""What do the workers do alike, when each would choose for itself?"""

from __future__ import annotations

import tensorflow as tf

from tfscale.training.all_reduce import all_gather


def least_of_workers(strategy: tf.distribute.Strategy, number: int) -> int:
    """The least of the workers' numbers, in one collective; to be called by every worker.

    Args:
        strategy: Of the job.
        number: This worker's.
    """
    if len(strategy.extended.worker_devices) == strategy.num_replicas_in_sync:
        return number
    own = tf.constant([number], tf.int64)
    gather = tf.function(lambda: strategy.run(lambda: all_gather(own)), autograph=False)
    return int(tf.reduce_min(strategy.experimental_local_results(gather())[0]))
