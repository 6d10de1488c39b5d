"""A layer with a fixed capacity, as of an expert: the first four rows of a batch pass a gate, others are zero."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 12
keras.utils.set_random_seed(2)


class Capacity(layers.Layer):
    def __init__(self, capacity):
        super().__init__()
        self.capacity = capacity
        self.gate = layers.Dense(2, activation="softmax")

    def call(self, x):
        mask = ops.one_hot(ops.argmax(self.gate(x), -1), 2)
        position = ops.cumsum(mask, axis=0) * mask
        keep = ops.cast(position <= self.capacity, "float32") * mask
        return x * ops.sum(keep * self.gate(x), axis=-1, keepdims=True)


inputs = keras.Input((5,))
model = keras.Model(inputs, layers.Dense(1)(Capacity(4)(inputs)))
model.compile("sgd", "mse")
rng = np.random.default_rng(0)
X, y = rng.normal(size=(29, 5)).astype("float32"), rng.normal(size=(29, 1)).astype("float32")
history = model.fit(X, y, batch_size=BATCH, epochs=2, shuffle=False)
