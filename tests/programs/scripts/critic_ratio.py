"""A GAN whose generator is updated at every third step, by tf.cond on the iterations of the critic's optimizer."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class GAN(keras.Model):
    def __init__(self):
        super().__init__()
        self.d = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
        self.g = keras.Sequential([keras.Input((3,)), layers.Dense(8, activation="tanh"), layers.Dense(6)])
        self.d_loss = keras.metrics.Mean(name="d_loss")
        self.g_loss = keras.metrics.Mean(name="g_loss")

    def compile(self, d_opt, g_opt):
        super().compile()
        self.d_opt, self.g_opt = d_opt, g_opt

    @property
    def metrics(self):
        return [self.d_loss, self.g_loss]

    def train_step(self, data):
        real, z = data
        with tf.GradientTape() as tape:
            d_loss = tf.reduce_mean((self.d(real) - 1) ** 2) + tf.reduce_mean(self.d(self.g(z)) ** 2)
        self.d_opt.apply_gradients(zip(tape.gradient(d_loss, self.d.trainable_variables), self.d.trainable_variables))
        self.d_loss.update_state(d_loss)

        def generator():
            with tf.GradientTape() as tape:
                g_loss = tf.reduce_mean((self.d(self.g(z)) - 1) ** 2)
            self.g_opt.apply_gradients(
                zip(tape.gradient(g_loss, self.g.trainable_variables), self.g.trainable_variables)
            )
            self.g_loss.update_state(g_loss)
            return g_loss

        g = tf.cond(self.d_opt.iterations % 3 == 0, generator, lambda: tf.zeros_like(d_loss))
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result(), "g": g}


x = rng.normal(size=(29, 6)).astype("float32")
z = rng.normal(size=(29, 3)).astype("float32")
model = GAN()
d_opt, g_opt = keras.optimizers.Adam(1e-2), keras.optimizers.RMSprop(1e-2)
d_opt.build(model.d.trainable_variables)
g_opt.build(model.g.trainable_variables)
model.compile(d_opt, g_opt)
history = model.fit(tf.data.Dataset.from_tensor_slices((x, z)).batch(BATCH), epochs=3)
