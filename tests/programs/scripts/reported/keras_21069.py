"""keras#21069: `fit` fails under MirroredStrategy, because a gradient has a partially known shape."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
REPORTED = "keras#21069"
keras.utils.set_random_seed(21069)


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(vocab_size, embed_dim)
        self.pos_emb = layers.Embedding(maxlen, embed_dim)

    def call(self, x):
        positions = ops.arange(0, ops.shape(x)[-1], 1)
        return self.token_emb(x) + self.pos_emb(positions)


inputs = keras.Input((None,), dtype="int32")
x = TokenAndPositionEmbedding(12, 30, 8)(inputs)
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
outputs = layers.Dense(2, activation="softmax")(layers.GlobalAveragePooling1D()(x))
model = keras.Model(inputs, outputs)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
rng = np.random.default_rng(0)
tokens, labels = rng.integers(0, 30, (29, 12)), rng.integers(0, 2, 29)
history = model.fit(tokens[:21], labels[:21], batch_size=BATCH, epochs=2, shuffle=False)
results = model.evaluate(tokens[21:], labels[21:], batch_size=BATCH, return_dict=True)
