"""Scripts that divide by the number of replicas before they train. Every function runs in its own process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

BATCH = 12
X = np.random.default_rng(0).normal(size=(29, 5)).astype("float32")
Y = X.sum(1, keepdims=True)

# At the top of a script, and what is written in its step in the place of the loss.
SCRIPTS = {
    "a float": ("SHARE = 1.0 / strategy.num_replicas_in_sync", "loss * SHARE"),
    "by name": ("REPLICAS = strategy.num_replicas_in_sync", "loss * (1.0 / REPLICAS)"),
    "the float of it": ("REPLICAS = strategy.num_replicas_in_sync\nSHARE = 1 / float(REPLICAS)", "loss * SHARE"),
    "a tensor": ("SHARE = tf.constant(1.0 / strategy.num_replicas_in_sync)", "loss * SHARE"),
    "a variable": ("HALF = 0.5\nSHARE = HALF / strategy.num_replicas_in_sync", "loss * SHARE"),
    "a part of the batch": ("PART = 12 // strategy.num_replicas_in_sync", "loss * 12.0 / PART"),
}
# Which train the same.
EXACT = {
    "an integer": ("SHARE = 1 / strategy.num_replicas_in_sync", "loss * SHARE"),
    "a variable that is whole": ("BATCH = 12\nPART = BATCH / strategy.num_replicas_in_sync", "loss * 12.0 / PART"),
    "in the step": ("", "loss * (1.0 / self.distribute_strategy.num_replicas_in_sync)"),
    "a rate": ("RATE = 1e-9 + 0.001 / strategy.num_replicas_in_sync", "loss"),
}


def trained(name: str, directory: str) -> float | str:
    """How far weights are from those of one device; or the error.

    Args:
        name: Of a script.
        directory: Where it is written.
    """
    top, loss = (SCRIPTS | EXACT)[name]
    path = Path(directory) / "train.py"
    path.write_text(_SCRIPT.format(top=top, loss=loss))
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)

    def kind(is_ours: bool) -> Any:
        strategy = dp.strategy if is_ours else tf.distribute.get_strategy()
        space: dict[str, Any] = {"strategy": strategy, "__file__": str(path), "__name__": "train"}
        exec(compile(path.read_text(), str(path), "exec"), space)
        return space["Model"]

    return apart(dp, kind)


def apart(dp: tfscale.DataParallel, kind: Callable[[bool], Any], *, run_eagerly: bool = False) -> float | str:
    """How far weights are from those of one device after an epoch; or the error.

    Args:
        dp: What trains.
        kind: The class of the model, told whether `dp` trains it.
        run_eagerly: Whether it has no graph.
    """
    found = []
    for is_ours in (True, False):
        made = kind(is_ours)
        with dp.scope() if is_ours else contextlib.nullcontext():
            keras.utils.set_random_seed(1)
            inputs = keras.Input((5,))
            model = made(inputs, keras.layers.Dense(1)(inputs))
            if is_ours:
                dp.prepare(model)
            model.compile(keras.optimizers.SGD(0.001), run_eagerly=run_eagerly)
        try:
            model.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0)
        except tfscale.ParityError as error:
            return str(error)
        found.append(model.get_weights()[0])
    return float(np.abs(found[0] - found[1]).max())


_SCRIPT = """
import keras
import tensorflow as tf

{top}


class Model(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            total = {loss}
        self.optimizer.apply(tape.gradient(total, self.trainable_variables), self.trainable_variables)
        return {{"loss": loss}}
"""
