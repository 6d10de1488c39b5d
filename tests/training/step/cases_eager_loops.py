"""Loops by hand, and what is said of them; in a process of its own."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

ROWS = np.linspace(-1.0, 1.0, 48).reshape(12, 4).astype("float32")


def told(num_replicas: int) -> dict[str, int]:
    """How often a loop was said to train eagerly, after each kind of loop."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=6)
    strategy = dp.strategy
    with dp.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tfscale").addHandler(handler)

    def train(rows: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(rows) ** 2) / 6.0
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    @tf.function
    def in_graph(rows: Any) -> None:
        strategy.run(train, args=(rows,))

    found = {}
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(ROWS).batch(6))
    loops = {
        "in a graph": in_graph,
        "predicts eagerly": lambda rows: strategy.run(lambda own: model(own), args=(rows,)),
        "trains eagerly": lambda rows: strategy.run(train, args=(rows,)),
        "trains eagerly again": lambda rows: strategy.run(train, args=(rows,)),
    }
    for name, loop in loops.items():
        for rows in data:
            loop(rows)
        found[name] = sum("trains eagerly" in each for each in said)
    return found
