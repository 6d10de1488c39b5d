"""Layers called in the branches of tf.cond by a counter, beside a loss of pairs."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = layers.Dense(6, activation="tanh"), layers.Dense(6), layers.Dense(1)
        self.n = tf.Variable(0, trainable=False)

    def call(self, x):
        return self.c(self.b(self.a(x)))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            h = self.a(x)
            out = tf.cond(self.n >= 2, lambda: self.c(self.b(h)), lambda: self.c(h))
            loss = tf.reduce_mean(tf.square(out - y))
            n = tf.math.l2_normalize(h, 1)
            loss += tf.reduce_mean(tf.square(tf.matmul(n, n, transpose_b=True)))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.n.assign_add(1)
        return {"loss": loss}


x, y = rng.normal(size=(29, 6)).astype("float32"), rng.normal(size=(29, 1)).astype("float32")
model = Net()
model(x[:1])
model.compile(keras.optimizers.SGD(0.1))
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
