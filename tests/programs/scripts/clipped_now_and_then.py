"""Gradients clipped by hand at every fourth step, the third, the seventh, ... by a counter."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class Clip(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(1)])
        self.n = tf.Variable(0, trainable=False)

    def call(self, x):
        return self.net(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        grads = tape.gradient(loss, self.trainable_variables)
        grads = tf.cond(tf.equal(self.n % 4, 2), lambda: tf.clip_by_global_norm(grads, 0.1)[0], lambda: grads)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.n.assign_add(1)
        return self.compute_metrics(x, y, y_pred)


x, y = rng.normal(size=(29, 6)).astype("float32"), rng.normal(size=(29, 1)).astype("float32")
model = Clip()
model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
