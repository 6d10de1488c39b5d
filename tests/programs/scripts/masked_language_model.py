"""Masked language modelling as in the BERT example: a loss vector with sample weights, tracked with the same ones."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
VOCAB, LENGTH = 15, 6
keras.utils.set_random_seed(37)

loss_fn = keras.losses.SparseCategoricalCrossentropy(reduction=None)
loss_tracker = keras.metrics.Mean(name="loss")


class MaskedLanguageModel(keras.Model):
    def train_step(self, inputs):
        features, labels, sample_weight = inputs
        with tf.GradientTape() as tape:
            predictions = self(features, training=True)
            loss = loss_fn(labels, predictions, sample_weight=sample_weight)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        loss_tracker.update_state(loss, sample_weight=sample_weight)
        return {"loss": loss_tracker.result()}

    @property
    def metrics(self):
        return [loss_tracker]


inputs = layers.Input((LENGTH,), dtype="int64")
word_embeddings = layers.Embedding(VOCAB, 8, name="word_embedding")(inputs)
position_embeddings = layers.Embedding(LENGTH, 8, name="position_embedding")(keras.ops.arange(LENGTH))
x = word_embeddings + position_embeddings
x = layers.LayerNormalization(epsilon=1e-6)(x + layers.MultiHeadAttention(2, 4)(x, x, x))
x = layers.LayerNormalization(epsilon=1e-6)(x + layers.Dense(8, activation="tanh")(x))
model = MaskedLanguageModel(inputs, layers.Dense(VOCAB, activation="softmax")(x))
model.compile(optimizer=keras.optimizers.Adam(learning_rate=1e-3))

rng = np.random.default_rng(0)
labels = rng.integers(2, VOCAB, (28, LENGTH))
masked = rng.uniform(size=labels.shape) < 0.3
features = np.where(masked, 1, labels)
dataset = tf.data.Dataset.from_tensor_slices((features, labels, masked.astype("float32"))).batch(BATCH)
history = model.fit(dataset, epochs=2)
