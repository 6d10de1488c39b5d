"""Run in a fresh process: what a loop by hand does with what it is given."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import tfscale


def gathered(replicas: int) -> list[int]:
    """The rows of all replicas, as TensorFlow gathers an argument.

    Args:
        replicas: Of this process; 1 on workers.
    """
    if replicas > 1:
        tfscale.simulate_replicas(replicas)
    strategy: Any = tfscale.DataParallel(global_batch=4).strategy
    [rows] = strategy.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(4))

    def step(own: Any) -> Any:
        context = tf.distribute.get_replica_context()
        assert context is not None
        return context.all_gather(own, axis=0)

    found = tf.function(lambda rows: strategy.run(step, args=(rows,)))(rows)
    return [int(each) for each in strategy.experimental_local_results(found)[0]]


def alone() -> float | None:
    """What worker 0 computes of as many ones, while the other one does nothing."""
    dp = tfscale.DataParallel(global_batch=8)
    strategy: Any = dp.strategy
    norm = tf.function(lambda rows: strategy.run(tf.norm, args=(rows,)))
    return float(strategy.experimental_local_results(norm(tf.ones((8, 2))))[0]) if dp.rank == 0 else None
