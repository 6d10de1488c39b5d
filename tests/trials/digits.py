"""A user's script for a study: handwritten digits, as scikit-learn has them."""

import keras
import numpy as np
from sklearn.datasets import load_digits


def build(rate=0.1, momentum=0.9):
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate, momentum=momentum), loss, metrics=["accuracy"])
    return model


def plain(rate=0.3):
    return build(rate, 0.0)


def failing(rate=0.1):
    if rate > 0.1:
        raise RuntimeError("no such rate")
    return build(rate)


def broken(rate=0.1):
    raise RuntimeError("no model")


def data():
    digits = load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target.astype("int32")
    order = np.random.default_rng(0).permutation(len(x))
    train, rest = order[:1297], order[1297:]
    return {"x": x[train], "y": y[train], "validation_data": (x[rest], y[rest])}


def scheduled():
    return build(keras.optimizers.schedules.CosineDecay(0.1, 100))


def for_small_batches(rate=0.02):
    return build(rate)


def too_low(rate=0.005):
    return build(rate)


def tuned(rate=0.04):
    return build(rate)
