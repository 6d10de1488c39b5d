"""Weights of which each batch sees a sample, in batches of one size: as many units as rows."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 6
WORKERS = True
keras.utils.set_random_seed(182)


class Variational(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.units = units
        self.seeds = keras.random.SeedGenerator(3)

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1], self.units), initializer="glorot_uniform")
        self.rho = self.add_weight(shape=(shape[-1], self.units), initializer=keras.initializers.Constant(-3.0))

    def call(self, x, training=False):
        deviation = ops.softplus(self.rho)
        self.add_loss(1e-3 * ops.sum(ops.square(self.mean) + ops.square(deviation) - 2 * ops.log(deviation)))
        noise = keras.random.normal(self.mean.shape, seed=self.seeds) if training else 0.0
        return ops.matmul(x, self.mean + deviation * noise)


rng = np.random.default_rng(0)
x = rng.normal(size=(30, 6)).astype("float32")
y = np.sin(x.sum(1, keepdims=True))
inputs = keras.Input((6,))
model = keras.Model(inputs, Variational(1)(ops.tanh(Variational(6)(inputs))))
model.compile(keras.optimizers.Adam(0.02), "mse")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
history = model.fit(data, epochs=2, verbose=0)
