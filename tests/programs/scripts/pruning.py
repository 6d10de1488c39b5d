"""Magnitude pruning: masks in variables, made anew at every fourth step by tf.cond, applied by assign."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class Pruned(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")
        self.mask = self.add_weight(shape=(shape[-1], self.units), initializer="ones", trainable=False, name="mask")
        self.n = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False, name="n")

    def call(self, x, training=False):
        if training:

            def prune():
                magnitude = tf.abs(tf.convert_to_tensor(self.kernel))
                k = int(0.5 * self.kernel.shape[0] * self.units)
                threshold = tf.sort(tf.reshape(magnitude, [-1]))[k]
                self.mask.assign(tf.cast(magnitude >= threshold, magnitude.dtype))
                return True

            tf.cond(tf.equal(self.n.value % 4, 3), prune, lambda: False)
            self.n.assign_add(1)
            self.kernel.assign(self.kernel * self.mask)
        return tf.matmul(x, self.kernel * self.mask)


x, y = rng.normal(size=(29, 6)).astype("float32"), rng.normal(size=(29, 1)).astype("float32")
model = keras.Sequential([keras.Input((6,)), Pruned(8), layers.ReLU(), layers.Dense(1)])
model.compile(keras.optimizers.Adam(1e-2), "mse")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
predictions = model.predict(x, batch_size=BATCH)
