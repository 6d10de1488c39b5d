"""Run in a fresh process: loops by hand that give a step batches of two data sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

_RANDOM = np.random.default_rng(0)
ROWS, OTHERS = (_RANDOM.normal(size=(24, 3)).astype("float32") for _ in range(2))
BATCH = 8
Loss = Callable[[Any, int], Any]


def _replicas() -> Any:
    return tf.distribute.get_strategy().num_replicas_in_sync


LOSSES: dict[str, Loss] = {
    # First, as a function that has asked how many replicas there are does so again at its beginning.
    "average over the batch": lambda each, size: tf.nn.compute_average_loss(each, global_batch_size=size),
    "root over the batch": lambda each, size: tf.sqrt(tf.nn.compute_average_loss(each, global_batch_size=size)),
    "of Keras": lambda each, size: keras.losses.MeanAbsoluteError()(tf.zeros_like(each)[:, None], each[:, None]),
    "over replicas": lambda each, size: tf.reduce_mean(each) / _replicas(),
    "average": lambda each, size: tf.nn.compute_average_loss(each),
}


def misses(replicas: int, other: int) -> dict[str, float | str]:
    """By how much weights miss those of one device after three steps; or what was said.

    Args:
        replicas: Of this process; 1 on workers.
        other: The batch of the second data set.
    """
    if replicas > 1:
        tfscale.simulate_replicas(replicas)
    strategy: Any = tfscale.DataParallel(global_batch=BATCH).strategy
    found: dict[str, float | str] = {}
    for name, loss in LOSSES.items():
        expected = _trained(tf.distribute.get_strategy(), loss, other)
        try:
            found[name] = float(np.abs(_trained(strategy, loss, other) - expected).max())
        except (tfscale.TfscaleError, tf.errors.InvalidArgumentError) as error:
            found[name] = str(error)
    return found


def put_together() -> str:
    """What is said of two data sets that are zipped in batches of two sizes."""
    tfscale.simulate_replicas(3)
    strategy: Any = tfscale.DataParallel(global_batch=BATCH).strategy
    data = tf.data.Dataset.zip(_batches(ROWS, BATCH), _batches(OTHERS, 5))
    try:
        strategy.experimental_distribute_dataset(data)
    except tfscale.DataError as error:
        return str(error)
    return ""


def _batches(rows: np.ndarray, size: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(rows).batch(size)


def _trained(strategy: Any, loss_of: Loss, other: int) -> np.ndarray:
    with strategy.scope():
        kernel = keras.Variable(np.ones((3, 2), "float32"))
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([kernel])

    def step(rows: Any, others: Any) -> None:
        with tf.GradientTape() as tape:
            each, far = (tf.reduce_mean(tf.square(tf.tanh(x @ kernel)), -1) for x in (rows, others))
            loss = loss_of(each, BATCH) + 0.5 * loss_of(far, other)
        optimizer.apply(tape.gradient(loss, [kernel.value]), [kernel])

    run_step = tf.function(lambda *batches: strategy.run(step, args=batches))
    pairs = (strategy.experimental_distribute_dataset(_batches(*each)) for each in ((ROWS, BATCH), (OTHERS, other)))
    for both in zip(*pairs, strict=False):
        run_step(*both)
    return np.array(kernel)
