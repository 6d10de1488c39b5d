"""Training on data that come slowly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tfscale.training.step.input_wait import INPUT_WAIT

BATCHES, EPOCHS = 12, 2


def deterministic() -> float | None:
    """What was measured in a run of deterministic operations, in which no graph may read the clock."""
    tf.config.experimental.enable_op_determinism()
    tfscale.simulate_replicas(2)
    dp = tfscale.DataParallel(global_batch=6)
    keras.utils.set_random_seed(0)
    with dp.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    model = dp.prepare(model)
    model.fit(np.ones((12, 2)), np.ones((12, 2)), verbose=0)
    return INPUT_WAIT[model].seconds


def slow_data(num_replicas: int, steps_per_execution: int | None, pause_s: float, directory: str) -> dict[str, float]:
    """Returns the seconds that all took, those that the steps waited, and what the run's file says."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=6)
    with dp.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
        options = {} if steps_per_execution is None else {"steps_per_execution": steps_per_execution}
        model.compile("sgd", "mse", **options)
    model = dp.prepare(model)
    rows = np.ones((6, 2), np.float32)

    def generate() -> Iterator[Any]:
        for _ in range(BATCHES):
            time.sleep(pause_s)
            yield rows, rows

    spec = tf.TensorSpec((6, 2))
    data = tf.data.Dataset.from_generator(generate, output_signature=(spec, spec))
    data = data.apply(tf.data.experimental.assert_cardinality(BATCHES))
    began_s = time.perf_counter()
    model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=dp.callbacks(Path(directory)))
    return {"took_s": time.perf_counter() - began_s, "waited_s": INPUT_WAIT[model].seconds}
