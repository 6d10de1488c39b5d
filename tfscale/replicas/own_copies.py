"""Which of several variables is the replica's own?

What a replica keeps for itself, beside what the strategy's variables hold: each of a worker's replicas has a variable
of its own, so that none waits for another, and a step that is traced once for all of them is alike on each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfscale.framework.one_trace import one_trace
from tfscale.replicas.lone_replica import LoneReplica


def one_for_each(num_replicas: int, make: Callable[[], tf.Variable]) -> list[tf.Variable]:
    """Variables on the host, where they are read while a step runs: one for each replica of this worker."""
    with tf.device("CPU:0"):
        return [make() for _ in range(num_replicas)]


def own_of(copies: Sequence[tf.Variable], first: int) -> tf.Variable:
    """Of those of `one_for_each`, that of the replica in whose context this is called.

    Args:
        copies: All of this worker's.
        first: The number of the worker's first replica among all.
    """
    one = one_trace()
    if one is not None:
        return one.own(copies)
    replica = tf.distribute.get_replica_context()
    if isinstance(replica, LoneReplica):
        return copies[0]
    return copies[int(tf.get_static_value(replica.replica_id_in_sync_group)) - first]
