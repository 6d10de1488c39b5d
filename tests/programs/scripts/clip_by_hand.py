"""Gradients clipped by hand with tf.clip_by_global_norm between the tape and the optimizer; their norm is logged."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(42)


class Clipped(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients, norm = tf.clip_by_global_norm(gradients, 0.5)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss, "norm": norm}


inputs = keras.Input((4,))
model = Clipped(inputs, layers.Dense(1)(layers.Dense(6, activation="tanh")(inputs)))
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(20, 4)).astype("float32"), 3 * rng.normal(size=(20, 1)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
