"""How do the batches of replicas get to their GPUs before the step asks for them?"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf


def in_turn_on_gpus(steps: tf.data.Dataset, strategy: tf.distribute.Strategy) -> tf.distribute.DistributedDataset:
    """Has TF copy each replica's batch ahead of time to its own GPU.

    Args:
        steps: Per step a tuple of one batch for each replica of this process.
        strategy: Whose replicas they are.
    """

    @tf.autograph.experimental.do_not_convert
    def in_turn(*batches: Any) -> tf.data.Dataset:
        return functools.reduce(tf.data.Dataset.concatenate, map(tf.data.Dataset.from_tensors, batches))

    return strategy.distribute_datasets_from_function(lambda _: steps.flat_map(in_turn))


def on_gpus(strategy: tf.distribute.Strategy) -> bool:
    """Whether the replicas of this process are GPUs, which want their input copied ahead of time."""
    return all("GPU" in device for device in strategy.extended.worker_devices)
