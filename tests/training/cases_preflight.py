"""Two workers whose scripts differ, and agree in the end."""

import time

import tensorflow as tf

from tfscale import ClusterError, ClusterSpec, DataParallel, make_strategy, resolve_cluster


def different_scripts():
    """Returns the message of each attempt that had to fail, and the seconds that the last one took."""
    rank = resolve_cluster().rank
    messages = [
        _error(lambda: DataParallel(global_batch=32 + rank)),
        _error(lambda: DataParallel(global_batch=32, seed=rank)),
        _error(lambda: make_strategy(agree_on={"own": rank})),
    ]
    start_s = time.monotonic()
    dp = DataParallel(global_batch=32, seed=5)
    took_s = time.monotonic() - start_s
    # TensorFlow has the port now: nobody meets there again.
    again = DataParallel(global_batch=64 + rank)
    assert again.strategy is dp.strategy
    total = dp.strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
    return messages, took_s, float(total)


def missing_peer(addresses, timeout_s):
    start_s = time.monotonic()
    message = _error(lambda: make_strategy(cluster=ClusterSpec(addresses, 0), timeout_s=timeout_s))
    return message, time.monotonic() - start_s


def _error(make):
    try:
        make()
    except ClusterError as error:
        return str(error)
    return "no error"
