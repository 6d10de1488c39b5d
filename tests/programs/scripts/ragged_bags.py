"""Bags of ids as ragged tensors: an embedding of each bag's mean, in a layer of one's own; some bags are empty."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 16
WORKERS = True
keras.utils.set_random_seed(304)

rng = np.random.default_rng(0)
lengths = rng.integers(0, 7, 50)
bags = tf.RaggedTensor.from_row_lengths(rng.integers(1, 20, lengths.sum()), lengths)
labels = rng.integers(0, 2, 50).astype("float32")


class MeanOfBag(layers.Layer):
    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(20, 6)

    def call(self, ids):
        count = tf.cast(ids.row_lengths(), "float32")
        mask = tf.sequence_mask(ids.row_lengths(), dtype="float32")
        embedded = self.embedding(ids.to_tensor()) * mask[..., tf.newaxis]
        return tf.reduce_sum(embedded, 1) / tf.maximum(count, 1.0)[:, tf.newaxis]


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.bag, self.head = MeanOfBag(), layers.Dense(1)

    def call(self, ids):
        return self.head(self.bag(ids))


model = Classifier()
model.compile(keras.optimizers.Adam(0.02), keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
data = tf.data.Dataset.from_tensor_slices((bags, labels)).batch(BATCH)
history = model.fit(data, epochs=2, validation_data=data, verbose=0)
predictions = model.predict(data, verbose=0)
