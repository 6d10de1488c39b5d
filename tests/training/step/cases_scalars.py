"""Run in a fresh process: losses of Keras's in loops by hand, of which a replica has no rows."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

BATCH = 8
ROWS = np.random.default_rng(0).normal(size=(BATCH + 1, 3)).astype("float32")
MEANS = [float((ROWS[:BATCH] ** 2).mean()), float((ROWS[BATCH:] ** 2).mean())]


def misses(replicas: int) -> dict[str, float]:
    """By how much the logged losses of a full batch and one of a row miss those of one device.

    Args:
        replicas: Of this process; 1 on workers.
    """
    if replicas > 1:
        tfscale.simulate_replicas(replicas)
    dp = tfscale.DataParallel(global_batch=BATCH)
    strategy: Any = dp.strategy
    loss_of, loss_of_each = keras.losses.MeanSquaredError(), keras.losses.MeanSquaredError(reduction=None)
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS).batch(BATCH))
    rows_of_each = []

    def step(rows: Any) -> Any:
        each = loss_of_each(rows, tf.zeros_like(rows))
        return {"loss": loss_of(rows, tf.zeros_like(rows)), "parts": [each, None]}

    def make_step() -> Any:
        return lambda rows: loss_of(rows, tf.zeros_like(rows))

    @tf.function
    def inside(rows: Any) -> Any:
        found = strategy.run(step, args=(rows,))
        return strategy.reduce("SUM", found["loss"], axis=None), strategy.gather(found["parts"][0], axis=0)

    @tf.function
    def returned(rows: Any) -> Any:
        return strategy.run(make_step(), args=(rows,))

    def summed(value: Any) -> float:
        return float(strategy.reduce("SUM", value, axis=None))

    losses: dict[str, list[float]] = {"inside": [], "returned": [], "eager": []}
    for rows in data:
        total, each = inside(rows)
        rows_of_each += [*each.numpy()]
        losses["inside"].append(float(total))
        losses["returned"].append(summed(returned(rows)))
        losses["eager"].append(summed(strategy.run(step, args=(rows,))["loss"]))
    found = {name: float(np.abs(np.subtract(each, MEANS)).max()) for name, each in losses.items()}
    return {**found, "rows": float(np.abs(np.subtract(rows_of_each, (ROWS**2).mean(-1))).max())}


def said() -> str:
    """Of a step that cannot take what Keras's loss is on a replica without rows."""
    tfscale.simulate_replicas(3)
    strategy: Any = tfscale.DataParallel(global_batch=BATCH).strategy
    loss_of = keras.losses.MeanSquaredError()
    [rows] = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS[:1]).batch(1))

    def step(rows: Any) -> Any:
        return tf.stack([loss_of(rows, tf.zeros_like(rows)), 0.0])

    try:
        tf.function(lambda rows: strategy.run(step, args=(rows,)))(rows)
    except tfscale.TfscaleError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
