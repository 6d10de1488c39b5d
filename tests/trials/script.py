"""A user's script: a small model, and data that are noisy."""

import keras
import numpy as np
import tensorflow as tf

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(512, 5)).astype("float32")
Y = (X @ np.arange(1, 6) + 4 * RANDOM.normal(size=512)).astype("float32")


def build():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.001), "mse")
    return model


def data():
    return X, Y


def dataset():
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(512).batch(16)


def half_made():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)


def with_own_step():
    model = OwnStep([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
