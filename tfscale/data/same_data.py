"""Do all workers read the same data, in the order that the chief's seed gives?"""

from __future__ import annotations

import tensorflow as tf

from tfscale.errors import DataError
from tfscale.replicas.agreement import gather_from_workers


def agree(strategy: tf.distribute.Strategy, *, seed: int, fingerprint: tuple[int, int], arguments: int) -> int:
    """Compares this worker's data with the others', in one collective; to be called by every worker.

    Args:
        strategy: Of the job.
        seed: This worker's.
        fingerprint: Number of examples, and a number made of the contents of some.
        arguments: A number made of whatever else must be the same.

    Returns:
        The chief's seed.

    Raises:
        DataError: On every worker, when one has other data or arguments than the chief.
    """
    per_worker = gather_from_workers(strategy, tf.constant([seed, *fingerprint, arguments], tf.int64))
    chief = per_worker[0]
    for rank, (_, num_examples, content, given) in enumerate(per_worker):
        if num_examples != chief[1]:
            raise DataError(
                "All workers must be given the same examples.\n"
                f"Received: {num_examples} examples on worker {rank}, {chief[1]} on worker 0. "
                "Give every worker the whole source; each takes its own rows of it."
            )
        if content != chief[2]:
            raise DataError(
                "All workers must be given the same examples in the same order.\n"
                f"Received: other examples on worker {rank} than on worker 0, {num_examples} on each. "
                "Leave out any sharding, and seed or leave out any shuffling of the source: `shuffle=True` does it."
            )
        if given != chief[3]:
            raise DataError(
                "All workers must make the dataset with the same arguments.\n"
                f"Received: others on worker {rank} than on worker 0: the batch, shuffle, drop_remainder, cache, "
                "sharding or worker_load differs. Give all workers the same."
            )
    return chief[0]
