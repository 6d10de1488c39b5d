"""Run in a fresh process: what AutoGraph rewrites of a loop by hand."""

from __future__ import annotations

import pathlib
import re
import tempfile
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

BATCH = 12
X = np.random.default_rng(0).normal(size=(40, 5)).astype("float32")
Y = X.sum(1, keepdims=True)


class Positive(keras.metrics.Metric):
    """A metric of the user's own, which Python's `if` asks for a tensor."""

    def __init__(self) -> None:
        super().__init__(name="positive")
        self.total = self.add_variable((), initializer="zeros", name="total")

    def update_state(self, values: Any) -> None:
        for value in values:
            if value > 0:
                self.total.assign_add(value)

    def result(self) -> Any:
        return self.total


def train(replicas: int, own_metric: bool) -> dict[str, Any]:
    """What a loop gives whose step has branches of tensors, and the names of the functions that were rewritten.

    Args:
        replicas: Of this process.
        own_metric: Whether it has a metric of the user's own.
    """
    if replicas > 1:
        tfscale.simulate_replicas(replicas)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    strategy: Any = dp.strategy
    with dp.scope():
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.1, clipnorm=0.5)
        optimizer.build(model.trainable_variables)
        error, mean, positive = keras.metrics.MeanAbsoluteError(), keras.metrics.Mean(), Positive()
    loss_of = keras.losses.MeanSquaredError(reduction="sum")
    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH))

    def step(batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            outputs = model(x)
            if tf.shape(x)[0] > 0:
                for _ in tf.range(2):
                    outputs = outputs * 1.5
            else:
                outputs = outputs * 1.0
            loss = loss_of(y, outputs) / BATCH
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        error.update_state(y, outputs)
        mean.update_state(y)
        if own_metric:
            positive.update_state(y[:, 0])
        return loss

    @tf.function
    def whole_step(batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)

    with tempfile.TemporaryDirectory() as folder:
        # Where AutoGraph writes what it makes.
        tempfile.tempdir = folder
        losses = [float(whole_step(batch)) for _ in range(2) for batch in batches]
        written = [path.read_text() for path in pathlib.Path(folder).glob("__autograph_generated_file*.py")]
        tempfile.tempdir = None
    rewritten = {name for text in written for name in re.findall(r"def tf__(\w+)\(", text)}
    results = [float(each.result()) for each in (error, mean, positive)]
    return {"losses": losses, "results": results, "rewritten": sorted(rewritten), "weights": model.get_weights()}


def sums_of_functions_within() -> dict[str, list[float]]:
    """What a function with a loop over tensors gives on two replicas, called by functions that stand in another one."""
    tfscale.simulate_replicas(2)
    strategy: Any = tfscale.DataParallel(global_batch=BATCH).strategy
    rows = tf.constant([1.0, 2.0, 3.0])

    def total_of(values: Any) -> Any:
        total = 0.0
        for number in tf.range(tf.shape(values)[0]):
            total += values[number]
        return total

    def by_lambda() -> Any:
        return strategy.run(lambda values: 2.0 * total_of(values), args=(rows,))

    def by_step() -> Any:
        def step(values: Any) -> Any:
            return total_of(values)

        return strategy.run(step, args=(rows,))

    return {
        call.__name__: [float(own) for own in strategy.experimental_local_results(tf.function(call)())]
        for call in (by_lambda, by_step)
    }
