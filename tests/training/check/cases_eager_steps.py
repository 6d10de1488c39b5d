"""Steps that run eagerly, of which the first batch does not tell all. Every function runs in its own process."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.listening import listening
from tests.training.check.cases_plain_quotients import apart

BATCH = 12
X = np.random.default_rng(0).normal(size=(29, 5)).astype("float32")
# An outlier, in the third batch.
X[26] *= 40
Y = X.sum(1, keepdims=True)


class Clipped(keras.Model):
    """By a norm that only the outlier reaches."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 50.0)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


class Plain(keras.Model):
    """As Keras's guide has it."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class DecidedInPython(Plain):
    """Which has no graph."""

    def train_step(self, data: Any) -> Any:
        if float(tf.reduce_max(data[0])) > 10:
            data = (tf.clip_by_value(data[0], -3.0, 3.0), data[1])
        return super().train_step(data)


KINDS: dict[str, type[keras.Model]] = {"clipped": Clipped, "plain": Plain, "decided in Python": DecidedInPython}


# What a script makes of a loss with the number of replicas that it asked for at its top.
COUNTED: dict[str, Any] = {
    "times its inverse": lambda loss, count: loss * (1 / count),
    "times it": lambda loss, count: loss * count,
    "divided by it": lambda loss, count: loss / count,
    "inverse times": lambda loss, count: (1 / count) * loss,
    "times its inverse, by Keras": lambda loss, count: keras.ops.multiply(loss, 1 / count),
}


def counted(how: str) -> float | str:
    """How far the weights of a step that counts replicas are from those of one device; or its error."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    asked = dp.strategy.num_replicas_in_sync

    def kind(is_ours: bool) -> type[keras.Model]:
        count = asked if is_ours else 1

        class Counting(keras.Model):
            def train_step(self, data: Any) -> Any:
                x, y = data
                with tf.GradientTape() as tape:
                    loss = COUNTED[how](tf.reduce_mean(tf.square(self(x, training=True) - y)), count)
                self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
                return {"loss": loss}

        return Counting

    return apart(dp, kind, run_eagerly=True)


def masked() -> tuple[list[Any], list[Any]]:
    """The weights of a model with masks, which Keras divides by, after two epochs on three replicas and on one."""
    x = np.random.default_rng(1).normal(size=(29, 6, 3)).astype("float32")
    for row, length in enumerate(np.random.default_rng(2).integers(1, 7, 29)):
        x[row, length:] = 0.0
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    found = []
    for is_ours in (True, False):
        with dp.scope() if is_ours else contextlib.nullcontext():
            keras.utils.set_random_seed(1)
            inputs = keras.Input((6, 3))
            hidden = keras.layers.GRU(4, return_sequences=True)(keras.layers.Masking()(inputs))
            model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
            if is_ours:
                dp.prepare(model, check="always")
            model.compile(keras.optimizers.Adam(0.01), "mae", metrics=["mse"], run_eagerly=True)
        model.fit(x, x[:, :, :1], batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    return found[0], found[1]


def trained(replicas: int, kind: str, all_functions: bool) -> tuple[list[Any], list[str]]:
    """The weights after two epochs, and what was logged.

    Args:
        replicas: Of this process.
        kind: Of `KINDS`.
        all_functions: Whether no function of TensorFlow has a graph; else the model alone has none.
    """
    if replicas > 1:
        tfscale.simulate_replicas(replicas)
    tf.config.run_functions_eagerly(all_functions)
    dp = tfscale.DataParallel(global_batch=BATCH)
    with dp.scope():
        keras.utils.set_random_seed(1)
        inputs = keras.Input((5,))
        model = dp.prepare(KINDS[kind](inputs, keras.layers.Dense(1)(inputs)))
        model.compile(keras.optimizers.SGD(0.01), run_eagerly=not all_functions)
    with listening() as said:
        model.fit(X, Y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return model.get_weights(), said


def loop_of_functions() -> list[float]:
    """The sums that a step gives, which is a function, where no function has a graph."""
    tfscale.simulate_replicas(2)
    strategy: Any = tfscale.DataParallel(global_batch=BATCH).strategy
    tf.config.run_functions_eagerly(True)

    @tf.function
    def step(rows: Any) -> Any:
        return tf.reduce_sum(rows)

    found = []
    for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(X).batch(BATCH)):
        found.append(float(strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)))
    return found


class Table(keras.Model):
    """Whose predictions are as many by as many as there are rows."""

    def predict_step(self, data: Any) -> Any:
        rows = self(data)
        return tf.matmul(rows, rows, transpose_b=True)


class Squeezed(keras.Model):
    """Whose step gathers rows without the axis of theirs, where there is a single one."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            rows = tfscale.gather_rows(tf.squeeze(self(data[0])))
            loss = tf.reduce_mean(tf.square(rows))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def of_other_shapes() -> dict[str, str]:
    """The errors of models of which replicas gather tensors of other shapes."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=4)
    found = {}
    for kind in (Table, Squeezed):
        with dp.scope():
            inputs = keras.Input((5,))
            model = dp.prepare(kind(inputs, keras.layers.Dense(2)(inputs)))
            model.compile("sgd", run_eagerly=True)
        try:
            if kind is Table:
                model.predict(X[:4], batch_size=4, verbose=0)
            else:
                model.fit(X[:8], Y[:8], batch_size=4, verbose=0)
            found[kind.__name__] = ""
        except tfscale.ParityError as error:
            found[kind.__name__] = str(error)
    return found
