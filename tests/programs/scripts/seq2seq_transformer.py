"""A sequence-to-sequence Transformer: masks of padding, cross attention, positional embeddings, dict inputs."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
VOCAB, LENGTH, DIM = 12, 6, 8
keras.utils.set_random_seed(14)


class PositionalEmbedding(layers.Layer):
    def __init__(self, sequence_length, vocab_size, embed_dim):
        super().__init__()
        self.token_embeddings = layers.Embedding(vocab_size, embed_dim)
        self.position_embeddings = layers.Embedding(sequence_length, embed_dim)

    def call(self, inputs):
        positions = ops.arange(0, ops.shape(inputs)[-1], 1)
        return self.token_embeddings(inputs) + self.position_embeddings(positions)

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs, 0)


class TransformerEncoder(layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads=2, key_dim=DIM)
        self.dense_proj = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(DIM)])
        self.layernorm = layers.LayerNormalization()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        padding_mask = None if mask is None else ops.cast(mask[:, None, :], dtype="int32")
        x = self.layernorm(inputs + self.attention(inputs, inputs, attention_mask=padding_mask))
        return x + self.dense_proj(x)


class TransformerDecoder(layers.Layer):
    def __init__(self):
        super().__init__()
        self.self_attention = layers.MultiHeadAttention(num_heads=2, key_dim=DIM)
        self.cross_attention = layers.MultiHeadAttention(num_heads=2, key_dim=DIM)
        self.layernorm = layers.LayerNormalization()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        inputs, encoder_outputs = inputs
        x = self.layernorm(inputs + self.self_attention(inputs, inputs, use_causal_mask=True))
        return x + self.cross_attention(x, encoder_outputs)


encoder_inputs = keras.Input((None,), dtype="int64", name="encoder_inputs")
encoder_outputs = TransformerEncoder()(PositionalEmbedding(LENGTH, VOCAB, DIM)(encoder_inputs))
decoder_inputs = keras.Input((None,), dtype="int64", name="decoder_inputs")
x = TransformerDecoder()([PositionalEmbedding(LENGTH, VOCAB, DIM)(decoder_inputs), encoder_outputs])
decoder_outputs = layers.Dense(VOCAB, activation="softmax")(x)
transformer = keras.Model({"encoder_inputs": encoder_inputs, "decoder_inputs": decoder_inputs}, decoder_outputs)
transformer.compile(
    keras.optimizers.SGD(0.1, momentum=0.9),
    loss=keras.losses.SparseCategoricalCrossentropy(ignore_class=0),
    metrics=["accuracy"],
)

rng = np.random.default_rng(0)
lengths = rng.integers(2, LENGTH + 1, (28, 1))
source = rng.integers(1, VOCAB, (28, LENGTH)) * (np.arange(LENGTH) < lengths)
target = rng.integers(1, VOCAB, (28, LENGTH + 1)) * (np.arange(LENGTH + 1) <= lengths)
features = {"encoder_inputs": source, "decoder_inputs": target[:, :-1]}
dataset = tf.data.Dataset.from_tensor_slices((features, target[:, 1:])).batch(BATCH)
history = transformer.fit(dataset, epochs=2, validation_data=dataset.take(2))
