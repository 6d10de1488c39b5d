"""What is drawn once for the whole batch: where pictures are cropped, blocks that are left out, noise on weights."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(172)


class LayerDrop(layers.Layer):
    """Leaves out a block, for all examples of a batch or for none."""

    def __init__(self, block, rate):
        super().__init__()
        self.block, self.rate = block, rate
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x, training=False):
        if not training:
            return x + self.block(x)
        kept = keras.random.uniform((), seed=self.seeds) >= self.rate
        return x + ops.where(kept, self.block(x), 0.0) / (1 - self.rate)


class Bayesian(layers.Layer):
    """Weights of which each batch sees a sample."""

    def __init__(self, units):
        super().__init__()
        self.units = units
        self.seeds = keras.random.SeedGenerator(2)

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1], self.units), initializer="glorot_uniform")
        self.rho = self.add_weight(shape=(shape[-1], self.units), initializer=keras.initializers.Constant(-2.0))

    def call(self, x, training=False):
        deviation = ops.softplus(self.rho)
        self.add_loss(1e-3 * ops.sum(ops.square(self.mean) + ops.square(deviation) - 2 * ops.log(deviation)))
        noise = keras.random.normal(self.mean.shape, seed=self.seeds) if training else 0.0
        return ops.matmul(x, self.mean + deviation * noise)


rng = np.random.default_rng(0)
x, y = rng.normal(size=(29, 8, 8, 1)).astype("float32"), rng.integers(0, 3, 29)
inputs = keras.Input((8, 8, 1))
hidden = layers.Flatten()(layers.RandomCrop(6, 6, seed=3)(inputs))
hidden = LayerDrop(layers.Dense(36, activation="tanh"), 0.4)(hidden)
model = keras.Model(inputs, Bayesian(3)(hidden))
model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
