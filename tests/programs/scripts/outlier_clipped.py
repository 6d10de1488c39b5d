"""Gradients clipped by hand with a norm that only an outlier in the third batch exceeds."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)
x = rng.normal(size=(29, 6)).astype("float32")
t = (x[:, :1] * 2 - x[:, 1:2]).astype("float32")


class M(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b = layers.Dense(8, activation="tanh"), layers.Dense(1)

    def call(self, x):
        return self.b(self.a(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
        g, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 20.0)
        self.optimizer.apply_gradients(zip(g, self.trainable_variables))
        return {"mse": loss}


t2 = t.copy()
t2[17] = 30.0
model = M()
model.compile(keras.optimizers.SGD(0.02))
history = model.fit(x, t2, batch_size=BATCH, epochs=3, shuffle=False)
