"""Steps whose batch has parts of several numbers of rows, and that cannot be divided."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.cases_errors import Raised, raised_by


class Own(keras.Sequential):
    """Takes a batch apart itself."""

    def train_step(self, data: Any) -> Any:
        alone, (rows, labels) = data
        with tf.GradientTape() as tape:
            both = self(tf.concat([alone, rows], axis=0), training=True)
            loss = tf.reduce_mean(both**2) + tf.reduce_mean((both[-tf.shape(rows)[0] :] - labels) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


class Draws(Own):
    """Draws between the calls of its layers."""

    def train_step(self, data: Any) -> Any:
        alone, rest = data
        return super().train_step((alone + tf.random.normal(tf.shape(alone)), rest))


def refused(num_replicas: int) -> dict[str, Raised]:
    """Raised by what each is given."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=8)
    values = np.ones((24, 2), np.float32)

    def zipped(alone: int = 6, labelled: int = 2, *, drop: bool = True) -> tf.data.Dataset:
        one = tf.data.Dataset.from_tensor_slices(values).batch(alone, drop_remainder=drop)
        other = tf.data.Dataset.from_tensor_slices((values, values)).batch(labelled, drop_remainder=drop)
        return tf.data.Dataset.zip((one, other))

    def fit(kind: Any, data: tf.data.Dataset, check: str = "auto", **options: Any) -> str:
        with dp.scope():
            model = kind([keras.Input((2,)), keras.layers.Dense(2)])
            model.compile("sgd", "mse", **options)
        dp.prepare(model, check=check).fit(data, verbose=0)
        return "trained"

    mapped = zipped(drop=False).map(lambda alone, rest: (alone, rest))
    return {
        "trains": raised_by(lambda: fit(Own, zipped())),
        "one of them is the batch": raised_by(lambda: fit(Own, zipped(8, 4))),
        "another batch": raised_by(lambda: fit(Own, zipped(6, 3))),
        "check off": raised_by(lambda: fit(Own, zipped(), check="off")),
        "eager": raised_by(lambda: fit(Own, zipped(), run_eagerly=True)),
        "draws": raised_by(lambda: fit(Draws, zipped())),
        "Keras's own step": raised_by(lambda: fit(keras.Sequential, zipped())),
        "told by nothing": raised_by(lambda: fit(Own, mapped)),
    }
