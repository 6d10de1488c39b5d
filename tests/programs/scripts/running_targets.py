"""PopArt: running mean and deviation of the targets in variables, by which the last layer is rescaled."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class PopArt(keras.Model):
    def __init__(self):
        super().__init__()
        self.body, self.head = layers.Dense(8, activation="relu"), layers.Dense(1)
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")
        self.mean = self.add_weight(shape=(), initializer="zeros", trainable=False, name="mean")
        self.m2 = self.add_weight(shape=(), initializer="zeros", trainable=False, name="m2")

    def call(self, x):
        return self.head(self.body(x))

    def train_step(self, data):
        x, y = data
        n = tf.cast(tf.shape(y)[0], y.dtype)
        mean = tf.reduce_mean(y)
        m2 = tf.reduce_sum(tf.square(y - mean))
        total = self.count + n
        delta = mean - self.mean
        old_mean, old_std = tf.identity(self.mean.value), tf.sqrt(self.m2 / tf.maximum(self.count, 1.0) + 1e-2)
        self.mean.assign(self.mean + delta * n / total)
        self.m2.assign(self.m2 + m2 + tf.square(delta) * self.count * n / total)
        self.count.assign(total)
        std = tf.sqrt(self.m2 / self.count + 1e-2)
        self.head.bias.assign((old_std * self.head.bias + old_mean - self.mean) / std)
        self.head.kernel.assign(self.head.kernel * old_std / std)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x) - (y - self.mean) / std))
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        return {"loss": loss, "std": std}


x, y = rng.normal(size=(29, 6)).astype("float32"), 5 + 2 * rng.normal(size=(29, 1)).astype("float32")
model = PopArt()
model(x[:1])
model.compile(keras.optimizers.SGD(0.05))
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
