"""A train_step with a masked loss as in image captioning: its sum over all words, divided by how many there are."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(62)


class Captioner(keras.Model):
    def __init__(self):
        super().__init__()
        self.image_layer = layers.Dense(6, activation="tanh")
        self.embedding = layers.Embedding(12, 6)
        self.rnn = layers.GRU(6, return_sequences=True)
        self.out = layers.Dense(12, activation="softmax")
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.acc_tracker = keras.metrics.Mean(name="accuracy")

    def call(self, inputs):
        images, words = inputs
        return self.out(self.rnn(self.embedding(words), initial_state=self.image_layer(images)))

    def calculate_loss(self, y_true, y_pred, mask):
        loss = self.loss(y_true, y_pred)
        mask = ops.cast(mask, dtype=loss.dtype)
        return ops.sum(loss * mask) / ops.sum(mask)

    def train_step(self, batch_data):
        images, captions = batch_data
        with tf.GradientTape() as tape:
            y_pred = self((images, captions[:, :-1]))
            mask = ops.not_equal(captions[:, 1:], 0)
            loss = self.calculate_loss(captions[:, 1:], y_pred, mask)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        correct = ops.logical_and(ops.equal(captions[:, 1:], ops.argmax(y_pred, axis=2)), mask)
        self.loss_tracker.update_state(loss)
        self.acc_tracker.update_state(ops.sum(ops.cast(correct, loss.dtype)) / ops.sum(ops.cast(mask, loss.dtype)))
        return {"loss": self.loss_tracker.result(), "acc": self.acc_tracker.result()}

    @property
    def metrics(self):
        return [self.loss_tracker, self.acc_tracker]


rng = np.random.default_rng(0)
images = rng.normal(size=(20, 5)).astype("float32")
captions = (rng.integers(1, 12, (20, 6)) * (np.arange(6) < rng.integers(2, 7, (20, 1)))).astype("int64")
model = Captioner()
cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=False, reduction="none")
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=cross_entropy)
history = model.fit(tf.data.Dataset.from_tensor_slices((images, captions)).batch(BATCH), epochs=2)
