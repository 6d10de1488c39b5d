"""Models that XLA compiles. Every function runs in its own process."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import tfscale
from tests.training.check.cases_parts import largest_difference
from tests.training.models import TARGETS, X


def fit_synchronized(num_replicas: int = 1) -> None:
    """One call of two steps, with two layers that exchange statistics.

    Args:
        num_replicas: Of this process.
    """
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=24, batch_norm="synchronized")
    norm, dense = keras.layers.BatchNormalization, keras.layers.Dense
    with dp.scope():
        layers = [dense(16, activation="gelu"), norm(), dense(16, activation="gelu"), norm(), dense(2)]
        model = dp.prepare(keras.Sequential([keras.Input((8,)), *layers]))
        model.compile("sgd", "mse", jit_compile=True, steps_per_execution=2)
    model.fit(X[:48], TARGETS[:48], verbose=0)


class Positions(keras.layers.Layer):
    """Adds a learned vector for each position: as a sparse gradient it is the same rows for every batch."""

    def build(self, input_shape: Any) -> None:
        self.table = self.add_weight(shape=input_shape[1:], initializer="ones", name="table")

    def call(self, inputs: Any) -> Any:
        return inputs + keras.ops.take(self.table, keras.ops.arange(keras.ops.shape(inputs)[1]), axis=0)


def positions(num_replicas: int, micro_batch: int | None) -> float:
    """How far learned positions and token vectors, with Nadam, are from plain Keras's, both compiled by XLA."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=8, micro_batch=micro_batch)
    rng = np.random.default_rng(0)
    tokens, y = rng.integers(0, 9, (28, 5)), rng.normal(size=(28, 2)).astype("float32")

    def trained(around: Any) -> list[Any]:
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Embedding(9, 4), Positions(), keras.layers.Flatten(), keras.layers.Dense(2)]
        model = around(keras.Sequential([keras.Input((5,)), *layers]))
        # What enters the optimizer as two rows is squared as two.
        model.compile(keras.optimizers.Nadam(0.02, epsilon=1e-3), "mse", jit_compile=True)
        model.fit(tokens, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
        return model.get_weights()

    expected = trained(lambda model: model)
    with dp.scope():
        ours = trained(dp.prepare)
    return largest_difference(ours, expected)
