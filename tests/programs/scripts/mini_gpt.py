"""A small GPT: token and position embeddings in a layer of their own, causal attention, Adam."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
WORKERS = True
VOCAB_SIZE, MAXLEN, EMBED_DIM, NUM_HEADS = 20, 6, 8, 2
keras.utils.set_random_seed(5)


def causal_attention_mask(n_dest, n_src):
    i = ops.arange(n_dest)[:, None]
    j = ops.arange(n_src)
    return (i >= j - n_src + n_dest)[None]


class TransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads, embed_dim)
        self.ffn = keras.Sequential([layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)])
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        mask = causal_attention_mask(ops.shape(inputs)[1], ops.shape(inputs)[1])
        out1 = self.layernorm1(inputs + self.att(inputs, inputs, attention_mask=mask))
        return self.layernorm2(out1 + self.ffn(out1))


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(vocab_size, embed_dim)
        self.pos_emb = layers.Embedding(maxlen, embed_dim)

    def call(self, x):
        positions = ops.arange(0, ops.shape(x)[-1], 1)
        return self.token_emb(x) + self.pos_emb(positions)


inputs = layers.Input((MAXLEN,), dtype="int32")
x = TokenAndPositionEmbedding(MAXLEN, VOCAB_SIZE, EMBED_DIM)(inputs)
x = TransformerBlock(EMBED_DIM, NUM_HEADS, 16)(x)
outputs = layers.Dense(VOCAB_SIZE)(x)
model = keras.Model(inputs, [outputs, x])
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss=[loss_fn, None])

text = np.random.default_rng(0).integers(0, VOCAB_SIZE, size=(44, MAXLEN + 1))
dataset = tf.data.Dataset.from_tensor_slices((text[:, :-1], text[:, 1:])).batch(BATCH)
history = model.fit(dataset, epochs=2)
logits, _ = model.predict(text[:5, :-1])
