"""Workers that run a loop of their own, and what data each has. Every function runs in each worker."""

from __future__ import annotations

import time
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

BATCH, ROWS, EPOCHS = 8, 43, 60
# Long enough for heartbeats to tell of it.
STEP_S = 0.02


def train(data: str, loop: str, epochs: int = EPOCHS) -> list[float]:
    """Trains on data that are other ones on worker 1; what becomes of it is in what the workers write."""
    # TensorFlow's own note on a loop over such data in a `tf.function`.
    warnings.filterwarnings("ignore", "To make it possible to preserve tf.data options", UserWarning)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    model, optimizer = _made(dp)
    if data.startswith("own"):
        of_own = _dataset("short" if data == "own, short" else "alike", dp.rank).rebatch(BATCH // 2)
        steps = dp.strategy.distribute_datasets_from_function(lambda _: of_own)
    else:
        steps = dp.strategy.experimental_distribute_dataset(_dataset(data, dp.rank))

    def on_replica(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(tf.square(model(x) - y)[:, 0], global_batch_size=BATCH)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def step(batch: Any) -> tf.Tensor:
        return dp.strategy.reduce("SUM", dp.strategy.run(on_replica, args=batch), axis=None)

    @tf.function
    def epoch() -> tf.Tensor:
        loss = 0.0
        for batch in steps:
            loss = step(batch)
        return loss

    losses = []
    for _ in range(epochs):
        if loop == "graph":
            losses.append(float(epoch()))
            time.sleep(STEP_S)
            continue
        for batch in steps:
            losses.append(float(step(batch)))
            print(f"step {len(losses)}", flush=True)
            time.sleep(STEP_S)
    return losses


def _made(dp: tfscale.DataParallel) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    with dp.scope():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def _dataset(data: str, rank: int) -> tf.data.Dataset:
    is_short = data.startswith("short")
    rows = ROWS - BATCH * (is_short and rank == 1)
    x = np.random.default_rng(0).normal(size=(rows, 5)).astype("float32")
    if data == "another order" and rank == 1:
        x = x[np.random.default_rng(9).permutation(rows)]
    # Labels of a short pass are no others: only its end tells.
    y = np.zeros((rows, 1), "float32") if is_short else x.sum(1, keepdims=True)
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    if data == "augmented":
        dataset = dataset.map(lambda each, label: (each, label + tf.random.normal((1,), stddev=0.1 * (1 + rank))))
    if data == "short, of unknown length":
        dataset = dataset.filter(lambda each, label: True)
    return dataset.batch(BATCH)


def train_by_hand(data: str, runs: str) -> list[float]:
    """As `train`, with global batches that the script hands over itself."""
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    model, optimizer = _made(dp)

    def on_replica(own: tfscale.loops.ReplicaBatch) -> tf.Tensor:
        x, y = own.data
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x) - y))
        sums = [*tape.gradient(loss, model.trainable_variables), loss, tf.cast(own.num_examples, tf.float32)]
        *gradients, loss, rows = tfscale.loops.all_reduce_sum(sums)
        tfscale.loops.apply_reduced(optimizer, [each / rows for each in gradients], model.trainable_variables)
        return loss / rows

    def step(batch: Any) -> tf.Tensor:
        return tfscale.loops.run_on_replicas(dp.strategy, on_replica, batch)

    if runs == "graph":
        step = tf.function(step)
    losses = []
    for _ in range(2):
        for batch in _dataset(data, dp.rank):
            losses.append(float(step(batch)))
            print(f"step {len(losses)}", flush=True)
    return losses
