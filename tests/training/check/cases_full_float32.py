"""How GPUs multiply float32 while a first step is looked at; in a process of its own."""

from __future__ import annotations

import contextlib
import queue
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tfscale.training.check.full_float32 import full_float32


class Telling(keras.layers.Layer):
    """Notes in each step whether products are in TF32."""

    # No list: what looks at a step puts that back.
    in_tf32: ClassVar[queue.SimpleQueue[bool]] = queue.SimpleQueue()

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training:
            return inputs
        nothing = tf.numpy_function(self._note, [], inputs.dtype, stateful=True)
        return inputs + tf.ensure_shape(nothing, [])

    def _note(self) -> np.ndarray:
        self.in_tf32.put(is_in_tf32())
        return np.zeros((), "float32")


def is_in_tf32() -> bool:
    """Whether products of float32 are in TF32 now."""
    return bool(tf.config.experimental.tensor_float_32_execution_enabled())


def settings(tf32: bool) -> tuple[list[bool], bool]:
    """Whether products were in TF32 in each step of a `fit`, and whether they are after it."""
    tfscale.simulate_replicas(2)
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    dp = tfscale.DataParallel(global_batch=6)
    x = np.random.default_rng(0).normal(size=(18, 3)).astype("float32")
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((3,)), Telling(), keras.layers.Dense(1)]))
        model.compile("sgd", "mse")
    model.fit(x, x[:, :1], batch_size=6, verbose=0)
    return [Telling.in_tf32.get() for _ in range(Telling.in_tf32.qsize())], is_in_tf32()


def settings_around_an_error() -> list[bool]:
    """Whether products are in TF32 before, in and after what ends in an error."""
    tf.config.experimental.enable_tensor_float_32_execution(True)
    found = [is_in_tf32()]
    with contextlib.suppress(ValueError), full_float32():
        found.append(is_in_tf32())
        raise ValueError
    return [*found, is_in_tf32()]
