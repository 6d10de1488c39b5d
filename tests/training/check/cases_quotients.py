"""Cases of steps that divide by a sum over their own rows, which all rows enter alike in the first batch."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.check.cases_step_check import Messages
from tests.training.check.cases_thresholds import Thresholds
from tests.training.contract_cases_anywhere import DATA
from tests.training.models import sgd

FAR = 1e6


def _all(rows: Any) -> Any:
    """A weight of one for each row, of which nobody knows in advance that it is."""
    return tf.cast(rows > -FAR, rows.dtype)


# By name: the loss that a step makes of a number for each row. Each is the mean of them, for these data.
BY_A_SUM: dict[str, Any] = {
    "weights": lambda rows: tf.reduce_sum(rows * _all(rows)) / tf.reduce_sum(_all(rows)),
    "weights, if any": lambda rows: tf.math.divide_no_nan(tf.reduce_sum(rows), tf.reduce_sum(_all(rows))),
    "what a mask leaves": lambda rows: tf.reduce_mean(tf.boolean_mask(rows, rows > -FAR)),
    "in a function": lambda rows: tf.function(lambda own: tf.reduce_sum(own) / tf.reduce_sum(_all(own)))(rows),
}
BY_NO_SUM: dict[str, Any] = {
    "how many rows": lambda rows: tf.reduce_sum(rows) / tf.cast(tf.shape(rows)[0], rows.dtype),
    "each row's own": lambda rows: tf.reduce_mean(rows / tf.stop_gradient(1.0 + rows)),
    "the sum over all": lambda rows: _of_all(tfscale.gather_rows(rows)),
    "a loss of Keras": lambda rows: tf.reduce_mean(keras.losses.huber(tf.zeros_like(rows)[:, None], rows[:, None])),
}


def _of_all(rows: Any) -> Any:
    return tf.reduce_sum(rows * _all(rows)) / tf.reduce_sum(_all(rows))


class Quotients(Thresholds):
    """A step of one's own with one of these losses."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.loss_of = {**BY_A_SUM, **BY_NO_SUM}[name]


class DrawsBeside(Quotients):
    """The same, beside numbers that are drawn between the calls of layers: such a step is divided in one way only."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self.net(x) + 0.0 * tf.random.normal(tf.shape(y))
            loss = self.loss_of(tf.reduce_mean(tf.square(y - outputs), axis=1))
        variables = self.net.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {}


class Masked(keras.Model):
    """A step of one's own around Keras's masked loss, which tfscale divides by what is unmasked in all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.mask, self.net = keras.layers.Masking(), keras.layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.net(self.mask(inputs))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y, weights = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True), weights)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def told() -> dict[str, str]:
    """By name: what is said of a step before its first update; nothing of one that is left as it is."""
    messages, dp = Messages(), _data_parallel()
    found = {}
    for name in (*BY_A_SUM, *BY_NO_SUM):
        with dp.scope():
            model = dp.prepare(Quotients(name))
            model.compile(sgd(learning_rate=0.05))
        found[name] = _said(messages, model, DATA["x"][:24], DATA["y"][:24])
    with dp.scope():
        model = dp.prepare(DrawsBeside("weights"))
        model.compile(sgd(learning_rate=0.05))
    found["draws beside"] = _said(messages, model, DATA["x"][:24], DATA["y"][:24])
    rows = np.random.default_rng(0).normal(size=(24, 3, 5)).astype("float32")
    for reduction in ("sum_over_batch_size", "mean_with_sample_weight"):
        with dp.scope():
            model = dp.prepare(Masked())
            model.compile(sgd(learning_rate=0.05), keras.losses.MeanSquaredError(reduction=reduction))
        found[f"masks of Keras, {reduction}"] = _said(messages, model, rows, rows[..., :2], np.ones((24, 3), "float32"))
    return found


def _data_parallel() -> tfscale.DataParallel:
    tfscale.simulate_replicas(2)
    keras.utils.set_random_seed(1)
    return tfscale.DataParallel(global_batch=24)


def _said(messages: Messages, model: keras.Model, x: Any, y: Any, weights: Any = None) -> str:
    messages.kept.clear()
    try:
        model.fit(x, y, sample_weight=weights, batch_size=24, epochs=1, verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return str(error)
    return "\n".join(messages.kept)
