"""SimCLR whose augmentation is a layer that draws with tf.random, in a step that compares every row with all others."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
RANDOM = True
keras.utils.set_random_seed(23)

rows = np.random.default_rng(0).normal(size=(30, 6)).astype("float32")


class Scaled(layers.Layer):
    def call(self, rows, training=True):
        return rows * (1 + tf.random.uniform([tf.shape(rows)[0], 1], -0.3, 0.3)) if training else rows


class SimCLR(keras.Model):
    def __init__(self):
        super().__init__()
        self.augment = keras.Sequential([layers.Input((6,)), Scaled()])
        self.encoder = keras.Sequential([layers.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(4)])

    def train_step(self, rows):
        one, other = self.augment(rows, training=True), self.augment(rows[:, ::-1], training=True)
        with tf.GradientTape() as tape:
            first, second = (tf.math.l2_normalize(self.encoder(each, training=True), 1) for each in (one, other))
            similar = tf.matmul(first, second, transpose_b=True) / 0.2
            labels = tf.range(tf.shape(similar)[0])
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(labels, similar, from_logits=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"contrast": loss}


model = SimCLR()
model.compile(optimizer=keras.optimizers.Adam(0.01))
history = model.fit(tf.data.Dataset.from_tensor_slices(rows).batch(BATCH), epochs=2, verbose=0)
