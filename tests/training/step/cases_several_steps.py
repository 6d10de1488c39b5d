"""Steps that need the gradients, or the rows, of all replicas in the middle, several of them in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.check.cases_parts import among_rows

BATCH = 8
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(44, 4)).astype("float32")
Y = 3 * _RNG.normal(size=(44, 2)).astype("float32")


class Clipped(keras.Model):
    """Clips by hand: gradients are summed where they are read."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 0.5)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"norm": norm}


class ClippedInBranch(Clipped):
    """The same, with a layer that is called in a branch of a condition."""

    def call(self, x: Any, training: bool = False) -> Any:
        del training
        first, second = self.layers[1:]
        rows = first(x)
        return tf.cond(tf.reduce_sum(x) > 0, lambda: second(rows), lambda: second(2.0 * rows))


def _model(kind: type[keras.Model]) -> keras.Model:
    inputs = keras.Input((4,))
    return kind(inputs, keras.layers.Dense(2)(keras.layers.Dense(6, activation="tanh")(inputs)))


# By name: the model, and what it is compiled with.
PROGRAMS: dict[str, tuple[type[keras.Model], dict[str, Any]]] = {
    "gradients summed where they are read": (Clipped, {}),
    "a layer in a branch": (ClippedInBranch, {}),
    "rows that meet in a loss": (keras.Model, {"loss": among_rows}),
}


def _fit(build: Callable[[], keras.Model], compiled: dict[str, Any], steps: int) -> tuple[Any, ...]:
    model = build()
    model.compile(optimizer=keras.optimizers.SGD(0.1), steps_per_execution=steps, **compiled)
    history = model.fit(X, Y, batch_size=BATCH, epochs=5, shuffle=False, verbose=0).history
    return history, model.get_weights()


def several_steps(num_replicas: int) -> dict[str, float]:
    """By name: how far four steps a call on replicas are from plain Keras's, one by one."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH)
    found = {}
    for name, (kind, compiled) in PROGRAMS.items():
        keras.utils.set_random_seed(1)
        expected = _fit(lambda kind=kind: _model(kind), compiled, 1)
        keras.utils.set_random_seed(1)
        with dp.scope():
            ours = _fit(lambda kind=kind: dp.prepare(_model(kind)), compiled, 4)
        pairs = zip(tf.nest.flatten(ours), tf.nest.flatten(expected), strict=True)
        found[name] = max(float(np.max(np.abs(np.subtract(a, b)))) for a, b in pairs)
    return found
