"""Run in a fresh process: models in float64, in which something is of float32, on three replicas."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np

import tfscale

WAYS = ("the losses", "a variable", "nothing")


class _Scale(keras.layers.Layer):
    """A layer for which tfscale cannot vouch, with weights in the dtype that Keras takes."""

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, inputs: Any) -> Any:
        return inputs * self.scale


class _Temperature(keras.layers.Layer):
    """A layer with a number in float32, as Keras makes it of Python's, or in the dtype that it is told."""

    def __init__(self, dtype_of_number: str | None):
        super().__init__()
        self.temperature = keras.Variable(1.7, dtype=dtype_of_number)

    def call(self, inputs: Any) -> Any:
        return inputs / self.temperature


def losses(way: str) -> list[float]:
    """Of each epoch."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, 6)), random.normal(size=(20, 3))
    if way == "the losses":
        keras.config.set_dtype_policy("float64")
        layer, loss = _Scale, "mse"
    else:
        keras.config.set_floatx("float64")
        layer = functools.partial(_Temperature, None if way == "a variable" else "float64")
        loss, y = keras.losses.SparseCategoricalCrossentropy(from_logits=True), random.integers(0, 3, 20)
    tfscale.simulate_replicas(3)
    keras.utils.set_random_seed(1)
    dp = tfscale.DataParallel(global_batch=8)
    with dp.scope():
        inputs = keras.Input((6,))
        outputs = keras.layers.Dense(3)(layer()(keras.layers.Dense(8, activation="tanh")(inputs)))
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.SGD(0.1), loss)
    return list(dp.prepare(model).fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"])
