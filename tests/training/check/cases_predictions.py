"""Cases of predictions that are no rows of numbers, as a script sees them on replicas and on one device."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

X = np.random.default_rng(0).normal(size=(21, 5)).astype("float32")


class Similarity(keras.Model):
    def predict_step(self, data: Any) -> Any:
        rows = self(data[0] if isinstance(data, tuple) else data)
        return tf.matmul(rows, rows, transpose_b=True)


class Named(keras.Model):
    def predict_step(self, data: Any) -> Any:
        best = tf.argmax(self(data[0] if isinstance(data, tuple) else data), axis=-1)
        return tf.gather(tf.constant(["a", "b", "c", "d"]), best)


def _model(kind: type[keras.Model]) -> keras.Model:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((5,))
    return kind(inputs, keras.layers.Dense(4)(inputs))


def predictions() -> dict[str, Any]:
    """By name: what three replicas and one device predict. Shares are uneven in the first call."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=8)
    with dp.scope():
        table, names = dp.prepare(_model(Similarity)), dp.prepare(_model(Named))
    return {
        "table": [model.predict_on_batch(X[:7]).tolist() for model in (table, _model(Similarity))],
        "names": [model.predict(X, batch_size=8, verbose=0).astype(str).tolist() for model in (names, _model(Named))],
    }
