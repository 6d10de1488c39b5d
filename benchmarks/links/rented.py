"""What the forecast is made for: a perceptron on digits, on devices that are simulated by waiting.

`WAIT` in the environment has every replica wait for a + c b seconds of a batch of b, as if a device computed; else the
cores of this machine, which all replicas share, would be what is measured.
"""

from __future__ import annotations

import os
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from benchmarks.study.workloads import digits

WAIT = "TFSCALE_BENCH_WAIT"
FIXED_S, PER_EXAMPLE_S = 0.02, 0.001


class Device(layers.Layer):
    """Returns what it gets, after as long as a device would take for its layer's part of a step of so many rows.

    A third of that passes on the way forward, and two thirds on the way back, before the layer's gradients are there.
    """

    def __init__(self, part: float):
        super().__init__()
        self._part = part

    def call(self, x: Any) -> Any:
        return self._waits(x)

    @tf.custom_gradient
    def _waits(self, x: Any) -> Any:
        def back(gradient: Any) -> Any:
            return self._after(gradient, 2 / 3)

        return self._after(x, 1 / 3), back

    def _after(self, x: Any, way: float) -> Any:
        def wait(rows: np.ndarray) -> np.ndarray:
            time.sleep(self._part * way * (FIXED_S + PER_EXAMPLE_S * len(rows)))
            return np.int32(0)

        # Without an effect, as far as TensorFlow knows: a pass of which nothing is asked is left out, as elsewhere.
        waited = tf.numpy_function(wait, [x], tf.int32, stateful=False)
        return x + tf.cast(tf.ensure_shape(waited, ()), x.dtype)


def build(rate: float = 0.003) -> keras.Model:
    """A perceptron whose 85,002 gradients are 340 kB; the rate is for a batch of 16."""
    model = keras.Sequential([keras.Input((64,))])
    for dense in (layers.Dense(256, activation="relu"), layers.Dense(256, activation="relu"), layers.Dense(10)):
        model.add(dense)
        if os.environ.get(WAIT):
            model.add(Device(1 / 3))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(rate, weight_decay=0.01), loss)
    return model


def data() -> tuple[Any, Any]:
    """Digits to train on."""
    found = digits()
    return found["x"], found["y"]
