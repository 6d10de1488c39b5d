"""Two workers whose scripts differ, and agree in the end."""

import os
import time

import tensorflow as tf

from tfscale import ClusterError, ClusterSpec, DataParallel, DeviceError, make_strategy, resolve_cluster
from tfscale.launch.ports import free_addresses


def different_scripts():
    """Returns the messages of attempts that had to fail, the seconds of the first and the last one, and a sum."""
    rank = resolve_cluster().rank
    start_s = time.monotonic()
    absent = _error(lambda: make_strategy(cluster=ClusterSpec(free_addresses(2), 0), timeout_s=2))
    missed_s = time.monotonic() - start_s
    messages = [
        _error(lambda: DataParallel(global_batch=32 + rank)),
        _error(lambda: DataParallel(global_batch=32, seed=rank)),
        _error(lambda: make_strategy(agree_on={"own": rank})),
        _error(lambda: _with_secret(f"a secret of worker {rank}")),
    ]
    start_s = time.monotonic()
    dp = DataParallel(global_batch=32, seed=5)
    took_s = time.monotonic() - start_s
    # TensorFlow has the port now: nobody meets there again.
    again = DataParallel(global_batch=64 + rank)
    assert again.strategy is dp.strategy
    total = dp.strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
    return absent, missed_s, messages, took_s, float(total)


def _with_secret(secret):
    os.environ["TFSCALE_SECRET"] = secret
    try:
        make_strategy()
    finally:
        del os.environ["TFSCALE_SECRET"]


def _error(make):
    try:
        make()
    except ClusterError as error:
        return str(error)
    return "no error"


def after_the_first_tensor(kind):
    """What is said when the strategy comes too late, and the seconds that it takes."""
    make = {"tensor": lambda: tf.constant(1.0), "dataset": lambda: tf.data.Dataset.range(3)}
    make[kind]()
    start_s = time.monotonic()
    try:
        DataParallel(global_batch=32)
    except DeviceError as error:
        return str(error), time.monotonic() - start_s
    return "no error", 0.0
