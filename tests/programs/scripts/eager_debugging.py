"""A step under debugging: run_eagerly, with numbers asked for on the way and kept in a list."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(53)


class Debugged(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(8, activation="relu")
        self.out = layers.Dense(3)
        self.loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.seen = []

    def call(self, inputs):
        hidden = self.hidden(inputs)
        if not np.isfinite(hidden.numpy()).all():
            raise ValueError("hidden values are not finite")
        return self.out(hidden)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_fn(y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.seen.append(float(loss))
        norms = [float(tf.norm(gradient).numpy()) for gradient in gradients]
        assert max(norms) < 1e3, norms
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss_now": loss}


model = Debugged()
model.compile(optimizer=keras.optimizers.Adam(0.01), run_eagerly=True)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(28, 5)).astype("float32"), rng.integers(0, 3, 28)
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
