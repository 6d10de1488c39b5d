"""A recurrent decoder that is fed the truth in training, and what it said itself otherwise."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(72)


class Decoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.to_logits = layers.Embedding(6, 4), layers.GRUCell(5), layers.Dense(6)
        self.embed_truth = layers.Dense(4)

    def call(self, tokens, training=None):
        state = ops.zeros((ops.shape(tokens)[0], 5))
        fed, logits = self.embed(tokens[:, 0]), []
        for step in range(1, 4):
            output, state = self.cell(fed, state)
            logits.append(self.to_logits(output))
            if training:
                fed = self.embed_truth(ops.one_hot(tokens[:, step], 6))
            else:
                fed = self.embed(ops.argmax(logits[-1], -1))
        return ops.stack(logits, 1)


rng = np.random.default_rng(0)
tokens = rng.integers(0, 6, size=(27, 4))
model = Decoder()
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.RMSprop(0.01), loss, metrics=["accuracy"])
history = model.fit(tokens, tokens[:, 1:], batch_size=BATCH, epochs=2, shuffle=False)
scores = model.evaluate(tokens, tokens[:, 1:], batch_size=BATCH)
