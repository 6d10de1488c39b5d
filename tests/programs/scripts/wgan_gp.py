"""WGAN-GP: several inner steps of the critic, a gradient penalty by a tape in a tape, two optimizers, no call."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
RANDOM = True
keras.utils.set_random_seed(11)

discriminator = keras.Sequential(
    [keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(1)], name="critic"
)
generator = keras.Sequential([keras.Input((3,)), layers.Dense(8, activation="tanh"), layers.Dense(5)], name="generator")


class WGAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim, discriminator_extra_steps=2, gp_weight=10.0):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.d_steps = discriminator_extra_steps
        self.gp_weight = gp_weight

    def compile(self, d_optimizer, g_optimizer, d_loss_fn, g_loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.d_loss_fn = d_loss_fn
        self.g_loss_fn = g_loss_fn

    def gradient_penalty(self, batch_size, real, fake):
        alpha = tf.random.uniform([batch_size, 1], 0.0, 1.0, real.dtype)
        interpolated = real + alpha * (fake - real)
        with tf.GradientTape() as gp_tape:
            gp_tape.watch(interpolated)
            pred = self.discriminator(interpolated, training=True)
        grads = gp_tape.gradient(pred, [interpolated])[0]
        norm = tf.sqrt(tf.reduce_sum(tf.square(grads), axis=1))
        return tf.reduce_mean((norm - 1.0) ** 2)

    def train_step(self, real):
        batch_size = tf.shape(real)[0]
        for _ in range(self.d_steps):
            random_latent_vectors = tf.random.normal(shape=(batch_size, self.latent_dim), dtype=real.dtype)
            with tf.GradientTape() as tape:
                fake = self.generator(random_latent_vectors, training=True)
                d_cost = self.d_loss_fn(
                    self.discriminator(real, training=True), self.discriminator(fake, training=True)
                )
                d_loss = d_cost + self.gradient_penalty(batch_size, real, fake) * self.gp_weight
            d_gradient = tape.gradient(d_loss, self.discriminator.trainable_variables)
            self.d_optimizer.apply_gradients(zip(d_gradient, self.discriminator.trainable_variables))
        random_latent_vectors = tf.random.normal(shape=(batch_size, self.latent_dim), dtype=real.dtype)
        with tf.GradientTape() as tape:
            g_loss = self.g_loss_fn(
                self.discriminator(self.generator(random_latent_vectors, training=True), training=True)
            )
        gen_gradient = tape.gradient(g_loss, self.generator.trainable_variables)
        self.g_optimizer.apply_gradients(zip(gen_gradient, self.generator.trainable_variables))
        return {"d_loss": d_loss, "g_loss": g_loss}


wgan = WGAN(discriminator, generator, latent_dim=3)
wgan.compile(
    d_optimizer=keras.optimizers.Adam(2e-3, beta_1=0.5, beta_2=0.9),
    g_optimizer=keras.optimizers.Adam(2e-3, beta_1=0.5, beta_2=0.9),
    d_loss_fn=lambda real, fake: tf.reduce_mean(fake) - tf.reduce_mean(real),
    g_loss_fn=lambda fake: -tf.reduce_mean(fake),
)
rows = np.random.default_rng(0).normal(size=(20, 5)).astype("float32")
history = wgan.fit(rows, batch_size=BATCH, epochs=2, shuffle=False)
