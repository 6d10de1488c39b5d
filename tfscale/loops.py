"""How does a training loop of one's own take an exact step?

The pieces that `fit` stands on, for a loop that does without it: split a global batch, run a function on every replica,
reduce sums and counts, and hand the reduced gradients to an optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.data.loop_data import noting_batch
from tfscale.errors import ScalingError
from tfscale.gradients.adascale import AdaScaleSGD
from tfscale.gradients.optimizers import gradients_reduced, reduce_gradients_once
from tfscale.gradients.updaters import innermost
from tfscale.replicas.all_reduce import all_gather, all_reduce_sum, global_mean, replica_id
from tfscale.replicas.replica_batch import ReplicaBatch, are_parts, local_replicas, own_parts

__all__ = ["ReplicaBatch", "all_gather", "all_reduce_sum", "apply_reduced", "global_mean", "run_on_replicas"]


def run_on_replicas(strategy: tf.distribute.Strategy, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
    """Runs `function` on every replica, each with its rows of a global batch.

    Call it inside a `tf.function`. All workers must call it with the same batch.

    Args:
        strategy: From `make_strategy`.
        function: Takes a `ReplicaBatch`, whose rows may be none when the batch has fewer than N, and returns tensors
            that are equal on all replicas, such as reduced ones.
        batch: Nested structure of tensors `[batch, ...]`; any number of rows. Or what iterating over
            `strategy.experimental_distribute_dataset(dp.dataset(...))` yields: then a replica without rows of its own
            holds one that does not count, and `num_examples` says so.

    Returns:
        What `function` returned.

    Example:
        >>> import tensorflow as tf, tfscale
        >>> strategy = tfscale.make_strategy(devices=1)
        >>> def mean(own):
        ...     return tfscale.loops.global_mean(tf.reduce_mean(own.data), own.num_examples)
        >>> float(tfscale.loops.run_on_replicas(strategy, mean, tf.constant([1.0, 2.0, 6.0])))
        3.0
    """
    replicas = local_replicas(strategy)
    if replicas.on_several_workers and not are_parts(batch):
        batch = noting_batch(strategy, batch)
    parts = own_parts(batch, replicas, stand_in=False)
    results = strategy.run(lambda: function(parts[replica_id() - replicas.first]))
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)


def apply_reduced(
    optimizer: keras.optimizers.Optimizer, gradients: Sequence[Any], variables: Sequence[keras.Variable]
) -> None:
    """Updates `variables` with gradients of the global batch, on every replica alike.

    To be called by every replica. Without it, Keras would reduce once more and make the update N times too large.

    Args:
        optimizer: Made and built under the strategy's scope.
        gradients: Already reduced, as by `all_reduce_sum`; equal on all replicas.
        variables: One per gradient.

    Raises:
        ScalingError: For `AdaScaleSGD`, which has to see the gradients of each replica.

    Example:
        >>> import keras, tensorflow as tf, tfscale
        >>> strategy = tfscale.make_strategy(devices=1)
        >>> with strategy.scope():
        ...     weight = keras.Variable(1.0)
        ...     optimizer = keras.optimizers.SGD(0.5)
        ...     optimizer.build([weight])
        >>> def step(own):
        ...     sums = tfscale.loops.all_reduce_sum([tf.reduce_sum(own.data), tf.cast(own.num_examples, tf.float32)])
        ...     tfscale.loops.apply_reduced(optimizer, [sums[0] / sums[1]], [weight])
        ...     return sums[1]
        >>> float(tfscale.loops.run_on_replicas(strategy, step, tf.constant([1.0, 3.0])))
        2.0
        >>> float(weight)
        0.0
    """
    if isinstance(innermost(optimizer), AdaScaleSGD):
        raise ScalingError(
            "AdaScale measures the gradients of each replica, before they are reduced.\n"
            "Received: an AdaScaleSGD with gradients that are reduced already. Train it with `fit`, or use SGD."
        )
    reduce_gradients_once(optimizer)
    with gradients_reduced():
        optimizer.apply(list(gradients), list(variables))
