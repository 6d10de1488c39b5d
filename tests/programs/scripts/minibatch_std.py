"""A WGAN-GP critic with StyleGAN's MinibatchStd: slopes of slopes, through a layer in which rows meet."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from sklearn.datasets import load_digits

BATCH = 12

keras.utils.set_random_seed(3)


class MinibatchStd(layers.Layer):
    def call(self, x):
        spread = ops.sqrt(ops.var(x, axis=0, keepdims=True) + 1e-4)
        return ops.concatenate([x, ops.tile(ops.mean(spread, axis=1, keepdims=True), (ops.shape(x)[0], 1))], axis=1)

    def compute_output_shape(self, shape):
        return (*shape[:-1], shape[-1] + 1)


class WGAN(keras.Model):
    def __init__(self):
        super().__init__()
        self.critic = keras.Sequential(
            [keras.Input((64,)), layers.Dense(16, "gelu"), layers.Dense(8, "gelu"), MinibatchStd(), layers.Dense(1)]
        )
        self.generator = keras.Sequential([keras.Input((4,)), layers.Dense(16, "gelu"), layers.Dense(64, "sigmoid")])
        self.built = True

    def compile(self, critic_optimizer, generator_optimizer):
        super().compile()
        self.critic_optimizer, self.generator_optimizer = critic_optimizer, generator_optimizer

    def train_step(self, data):
        real, noise = data
        with tf.GradientTape() as tape:
            fake = self.generator(noise)
            with tf.GradientTape() as inner:
                between = (real + fake) / 2
                inner.watch(between)
                scores = self.critic(between, training=True)
            norms = ops.sqrt(ops.sum(inner.gradient(scores, between) ** 2, axis=1))
            cost = ops.mean(self.critic(fake)) - ops.mean(self.critic(real)) + 10 * ops.mean((norms - 1) ** 2)
        weights = self.critic.trainable_weights
        self.critic_optimizer.apply_gradients(zip(tape.gradient(cost, weights), weights))
        with tf.GradientTape() as tape:
            loss = -ops.mean(self.critic(self.generator(noise)))
        weights = self.generator.trainable_weights
        self.generator_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"cost": cost, "loss": loss}


real = (load_digits().data[:44] / 16).astype("float32")
noise = np.random.default_rng(0).normal(size=(44, 4)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((real, noise)).batch(BATCH)
model = WGAN()
model.compile(keras.optimizers.SGD(0.01), keras.optimizers.SGD(0.01))
history = model.fit(data, epochs=2, verbose=0)
