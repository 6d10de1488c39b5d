"""Semi-supervised contrast: eight pictures without labels beside two that have them, zipped; a probe."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(21)

rng = np.random.default_rng(0)
unlabelled = tf.data.Dataset.from_tensor_slices(rng.normal(size=(22, 6)).astype("float32")).batch(BATCH)
pictures, kinds = rng.normal(size=(8, 6)).astype("float32"), rng.integers(0, 3, 8)
labelled = tf.data.Dataset.from_tensor_slices((pictures, kinds)).batch(2)
train = tf.data.Dataset.zip((unlabelled, labelled)).prefetch(2)


class Contrast(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(4)])
        self.probe = keras.Sequential([layers.Input((4,)), layers.Dense(3)])
        self.cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.accuracy = keras.metrics.SparseCategoricalAccuracy()
        self.contrast = keras.metrics.Mean(name="contrast")

    def compile(self, encoder_optimizer, probe_optimizer):
        super().compile()
        self.encoder_optimizer, self.probe_optimizer = encoder_optimizer, probe_optimizer

    def train_step(self, data):
        alone, (pictures, kinds) = data
        rows = tf.concat([alone, pictures], axis=0)
        with tf.GradientTape() as tape:
            first, second = self.encoder(rows, training=True), self.encoder(rows[:, ::-1], training=True)
            similar = tf.matmul(tf.math.l2_normalize(first, 1), tf.math.l2_normalize(second, 1), transpose_b=True)
            loss = tf.reduce_mean(
                keras.losses.sparse_categorical_crossentropy(tf.range(tf.shape(rows)[0]), similar / 0.2, True)
            )
        weights = self.encoder.trainable_weights
        self.encoder_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.contrast.update_state(loss)
        with tf.GradientTape() as tape:
            logits = self.probe(self.encoder(pictures), training=True)
            probe_loss = self.cross_entropy(kinds, logits)
        weights = self.probe.trainable_weights
        self.probe_optimizer.apply_gradients(zip(tape.gradient(probe_loss, weights), weights))
        self.accuracy.update_state(kinds, logits)
        return {"contrast": self.contrast.result(), "accuracy": self.accuracy.result(), "probe": probe_loss}


model = Contrast()
model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01))
history = model.fit(train, epochs=2, verbose=0)
