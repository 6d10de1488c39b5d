"""A language model whose output layer is its token embedding, reversed, with learned positions and Nadam."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
VOCAB, LENGTH = 14, 5
keras.utils.set_random_seed(65)


class Positions(layers.Layer):
    def build(self, input_shape):
        self.table = self.add_weight(shape=(LENGTH, input_shape[-1]), initializer="random_normal", name="table")

    def call(self, x):
        return x + ops.take(self.table, ops.arange(ops.shape(x)[1]), axis=0)


inputs = keras.Input((None,), dtype="int32")
embedding = layers.Embedding(VOCAB, 6)
x = Positions()(embedding(inputs))
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True))


class Reverse(layers.Layer):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.embedding.embeddings))


model = keras.Model(inputs, Reverse(embedding)(x))
model.compile(
    keras.optimizers.Nadam(1e-2),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
tokens = np.random.default_rng(0).integers(0, VOCAB, (28, LENGTH + 1)).astype("int32")
history = model.fit(tokens[:, :-1], tokens[:, 1:], batch_size=BATCH, epochs=2, shuffle=False)
predictions = model.predict(tokens[:4, :-1])
