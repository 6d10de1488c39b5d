"""Cases of steps that go by a threshold which no row of the first batch reaches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.check.cases_step_check import Messages
from tests.training.contract_cases_anywhere import DATA
from tests.training.models import sgd

# Far beyond all numbers of the data.
FAR = 1e6

# By name: the loss that a step makes of a number for each row. Each is the mean of them, for these data.
BY_THE_BATCH: dict[str, Any] = {
    "a choice": lambda rows: tf.where(_mean(rows) > FAR, tf.sqrt(_mean(rows)), _mean(rows)),
    "a condition": lambda rows: tf.cond(_mean(rows) > FAR, lambda: tf.sqrt(_mean(rows)), lambda: _mean(rows)),
    "a limit": lambda rows: tf.minimum(_mean(rows), FAR),
    "a factor of one": lambda rows: _mean(rows) * tf.cast(_mean(rows) < FAR, tf.float32),
    "any row": lambda rows: tf.where(tf.reduce_any(rows > FAR), 0.0, _mean(rows)),
    "in a function": lambda rows: tf.function(lambda own: tf.minimum(_mean(own), FAR))(rows),
    "a size": lambda rows: tf.abs(_mean(rows)),
    "a function of Python": lambda rows: _limited_in_python(_mean(rows)),
    "a place among others": lambda rows: _mean(rows) * tf.gather([1.0, 0.5], tf.searchsorted([FAR], [_mean(rows)])[0]),
    "a kind of number": lambda rows: (
        _mean(rows) * tf.gather([1.0, 0.5], tf.raw_ops.Bucketize(input=_mean(rows), boundaries=[FAR]))
    ),
    "which is larger": lambda rows: _mean(rows) * tf.gather([1.0, 0.5], tf.argmax(tf.stack([FAR, _mean(rows)]))),
    "the largest of several": lambda rows: _mean(rows) * tf.reduce_max(tf.stack([FAR, _mean(rows)])) / FAR,
    "a whole number": lambda rows: _mean(rows) * tf.gather([1.0, 0.5], tf.cast(_mean(rows) / FAR, tf.int32)),
    "how often": lambda rows: _mean(rows) * (1.0 + _mean(rows) // FAR),
    "slopes in a layer": lambda rows: _mean(tf.square(_limited_slopes(rows))),
}
ROW_BY_ROW: dict[str, Any] = {
    "a limit of each row": lambda rows: _mean(tf.minimum(rows, FAR)),
    "a choice of each row": lambda rows: _mean(tf.where(rows > FAR, tf.sqrt(rows), rows)),
    "each row in a loop": lambda rows: _mean(tf.map_fn(lambda row: tf.minimum(row, FAR), rows)),
    "an assertion": lambda rows: _asserted(rows),
    "the rows of all": lambda rows: tf.cond(
        _mean(tfscale.gather_rows(rows)) > FAR, lambda: _mean(tf.sqrt(rows)), lambda: _mean(rows)
    ),
    "how many rows": lambda rows: _mean(rows) * tf.cast(tf.shape(rows)[0] < 1000, tf.float32),
    "rows as a column": lambda rows: _mean(tf.nn.leaky_relu(tf.clip_by_value(rows[:, None], 0.0, FAR))),
    "rows for which a length is asked": lambda rows: _mean(tf.nn.relu(tf.reshape(rows, (int(rows.shape[0]), 1)))),
    "all rows at a time": lambda rows: _mean(tf.vectorized_map(lambda row: tf.minimum(row, FAR), rows)),
    "a choice nobody uses": lambda rows: (tf.minimum(_mean(rows), FAR), _mean(rows))[1],
    "a loss of Keras": lambda rows: _mean(keras.losses.huber(tf.zeros_like(rows)[:, None], rows[:, None])),
    "each row in Python": lambda rows: _mean(_limited_in_python(rows)),
    "the largest of each row": lambda rows: _mean(tf.reduce_max(tf.stack([rows, rows - 1.0], axis=1), axis=1)),
    "a whole number of each row": lambda rows: _mean(rows * tf.gather([1.0, 0.5], tf.cast(rows / FAR, tf.int32))),
    "the slope of each row": lambda rows: _mean(tf.square(_each_limited(rows))),
    "a draw": lambda rows: tf.where(keras.random.uniform([]) > 2.0, 0.0, _mean(rows)),
}
# By name: what a step makes of its gradients.
OF_GRADIENTS: dict[str, Any] = {
    "a norm": lambda gradients: tf.clip_by_global_norm(gradients, FAR)[0],
    "the norm of each": lambda gradients: [tf.clip_by_norm(each, FAR) for each in gradients],
    "each number": lambda gradients: [tf.clip_by_value(each, -FAR, FAR) for each in gradients],
}


def _mean(rows: Any) -> Any:
    return tf.reduce_mean(rows)


def _limited_in_python(number: Any) -> Any:
    @tf.custom_gradient
    def limited(given: Any) -> Any:
        made = tf.numpy_function(lambda value: np.minimum(value, np.float32(FAR)), [given], given.dtype)
        made.set_shape(given.shape)
        return made, lambda slope: slope

    return limited(number)


@tf.custom_gradient
def _limited_slopes(rows: Any) -> Any:
    return tf.identity(rows), lambda slope: tf.clip_by_norm(slope, FAR)


@tf.custom_gradient
def _each_limited(rows: Any) -> Any:
    return tf.identity(rows), lambda slope: tf.clip_by_value(slope, -FAR, FAR)


def _asserted(rows: Any) -> Any:
    with tf.control_dependencies([tf.debugging.assert_less(_mean(rows), FAR)]):
        return _mean(rows)


class Thresholds(keras.Model):
    """A step of one's own with one of these losses, or gradients."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.net = keras.layers.Dense(2, activation="relu")
        self.loss_of = {**BY_THE_BATCH, **ROW_BY_ROW}.get(name, _mean)
        self.made_of = OF_GRADIENTS.get(name, lambda gradients: gradients)

    def call(self, inputs: Any) -> Any:
        return self.net(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_of(tf.reduce_mean(tf.square(y - self.net(x)), axis=1))
        variables = self.net.trainable_variables
        self.optimizer.apply(self.made_of(tape.gradient(loss, variables)), variables)
        return {}


class _Slopes(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return _limited_slopes(inputs)


def slopes_in_a_layer() -> list[np.ndarray]:
    """Weights of a layer that limits the slopes of all rows together, on one device and on three replicas."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(29, 6)).astype("float32"), rng.normal(size=(29, 1)).astype("float32")
    # The first outlier comes in the third batch, which is not looked at.
    y[17] *= FAR * 100
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=8)
    found = []
    for scope in (contextlib.nullcontext(), dp.scope()):
        keras.utils.set_random_seed(1)
        with scope:
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1), _Slopes()])
            model = model if not found else dp.prepare(model)
            model.compile(sgd(learning_rate=0.01 / FAR), "mse")
        model.fit(x, y, batch_size=8, epochs=1, verbose=0, shuffle=False)
        found.append(model.get_weights()[0])
    return found


def told() -> dict[str, str]:
    """By name: what is said of a step before its first update; nothing of one that is left as it is."""
    return _told(24, (*BY_THE_BATCH, *ROW_BY_ROW, *OF_GRADIENTS))


def told_of_one_row_each() -> dict[str, str]:
    """The same where each replica gets one row."""
    names = (
        "a choice",
        "a limit of each row",
        "rows as a column",
        "rows for which a length is asked",
        "a loss of Keras",
    )
    return _told(2, names)


def _told(num_rows: int, names: Iterable[str]) -> dict[str, str]:
    messages = Messages()
    tfscale.simulate_replicas(2)
    keras.utils.set_random_seed(1)
    dp = tfscale.DataParallel(global_batch=num_rows)
    found = {}
    for name in names:
        messages.kept.clear()
        with dp.scope():
            model = dp.prepare(Thresholds(name))
            model.compile(sgd(learning_rate=0.05, clipnorm=1.0))
        try:
            rows = DATA["x"][:num_rows], DATA["y"][:num_rows]
            model.fit(*rows, batch_size=num_rows, epochs=1, verbose=0, shuffle=False)
            found[name] = "\n".join(messages.kept)
        except tfscale.ParityError as error:
            found[name] = str(error)
    return found
