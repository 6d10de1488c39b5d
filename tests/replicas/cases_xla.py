"""Models that XLA compiles. Every function runs in its own process."""

from __future__ import annotations

import keras

import tfscale
from tests.training.models import TARGETS, X


def fit_synchronized(num_replicas: int) -> None:
    """One call of two steps, with two layers that exchange statistics."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=24, batch_norm="synchronized")
    norm, dense = keras.layers.BatchNormalization, keras.layers.Dense
    with dp.scope():
        layers = [dense(16, activation="gelu"), norm(), dense(16, activation="gelu"), norm(), dense(2)]
        model = dp.prepare(keras.Sequential([keras.Input((8,)), *layers]))
        model.compile("sgd", "mse", jit_compile=True, steps_per_execution=2)
    model.fit(X[:48], TARGETS[:48], verbose=0)
