"""A gate of experts whose uneven load over the batch is a loss of its own, between layers of Keras."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(2)


class MoE(layers.Layer):
    def __init__(self):
        super().__init__()
        self.gate = layers.Dense(3, activation="softmax")

    def call(self, x):
        gates = self.gate(x)
        self.add_loss(ops.var(ops.sum(gates, axis=0)))
        return gates


inputs = keras.Input((5,))
model = keras.Model(inputs, layers.Dense(1)(MoE()(inputs)))
model.compile("sgd", "mse")
rng = np.random.default_rng(0)
X, y = rng.normal(size=(29, 5)).astype("float32"), rng.normal(size=(29, 1)).astype("float32")
history = model.fit(X, y, batch_size=BATCH, epochs=2, shuffle=False)
