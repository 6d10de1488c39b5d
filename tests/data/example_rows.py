"""The examples of the cases, and the model that they train."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

GLOBAL_BATCH, EPOCHS, NUM_EXAMPLES = 10, 2, 33
# The last batch has 3 rows.
X = np.random.default_rng(0).normal(size=(33, 5)).astype("float32")
IDS = np.arange(33)
Y = X.sum(axis=1, keepdims=True)


class Items(keras.utils.PyDataset):
    """Batches of 7, which no global batch is made of."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        rows = slice(7 * index, 7 * index + 7)
        return (X[rows], IDS[rows]), Y[rows]


def noting_ids(seen: list[int]) -> Any:
    """Notes on which example it is called."""

    def note(example_id: np.ndarray) -> np.ndarray:
        seen.append(int(example_id))
        return example_id

    return lambda example_id: tf.ensure_shape(tf.numpy_function(note, [example_id], tf.int64), ())


def noting(seen: list[int]) -> Any:
    """Notes on which example it is called, and adds noise that depends on the seed alone."""
    note = noting_ids(seen)

    def map_fn(example: Any, seed: tf.Tensor) -> Any:
        (x, example_id), y = example
        noise = tf.random.stateless_normal((5,), seed)
        return tf.ensure_shape(x, (5,)) + 0.1 * noise + 0.0 * tf.cast(note(example_id), tf.float32), y

    return map_fn


def make_model(dp: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    with dp.scope():
        model = dp.prepare(
            keras.Sequential([keras.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
        )
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    return model
