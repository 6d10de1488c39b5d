"""Denoising diffusion: a normalization that was adapted, an EMA network moved by assign, losses by compile(loss=)."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
RANDOM = True
keras.utils.set_random_seed(12)


def get_network():
    noisy, variances = keras.Input((6,)), keras.Input((1,))
    x = layers.Concatenate()([noisy, variances])
    x = layers.Dense(16, activation="swish")(x)
    return keras.Model([noisy, variances], layers.Dense(6, kernel_initializer="zeros")(x))


class DiffusionModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.normalizer = layers.Normalization()
        self.network = get_network()
        self.ema_network = keras.models.clone_model(self.network)

    def compile(self, **kwargs):
        super().compile(**kwargs)
        self.noise_loss_tracker = keras.metrics.Mean(name="n_loss")
        self.image_loss_tracker = keras.metrics.Mean(name="i_loss")

    @property
    def metrics(self):
        return [self.noise_loss_tracker, self.image_loss_tracker]

    def denoise(self, noisy, noise_rates, signal_rates, training):
        network = self.network if training else self.ema_network
        pred_noises = network([noisy, noise_rates**2], training=training)
        return pred_noises, (noisy - noise_rates * pred_noises) / signal_rates

    def losses_of(self, images, training):
        images = self.normalizer(images, training=training)
        noises = keras.random.normal(shape=ops.shape(images))
        angles = 0.3 + keras.random.uniform(shape=(ops.shape(images)[0], 1))
        noise_rates, signal_rates = ops.sin(angles), ops.cos(angles)
        noisy = signal_rates * images + noise_rates * noises
        pred_noises, pred_images = self.denoise(noisy, noise_rates, signal_rates, training)
        return self.loss(noises, pred_noises), self.loss(images, pred_images)

    def train_step(self, images):
        with tf.GradientTape() as tape:
            noise_loss, image_loss = self.losses_of(images, training=True)
        gradients = tape.gradient(noise_loss, self.network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights))
        self.noise_loss_tracker.update_state(noise_loss)
        self.image_loss_tracker.update_state(image_loss)
        for weight, ema_weight in zip(self.network.weights, self.ema_network.weights):
            ema_weight.assign(0.9 * ema_weight + (1 - 0.9) * weight)
        return {m.name: m.result() for m in self.metrics}

    def test_step(self, images):
        noise_loss, image_loss = self.losses_of(images, training=False)
        self.noise_loss_tracker.update_state(noise_loss)
        self.image_loss_tracker.update_state(image_loss)
        return {m.name: m.result() for m in self.metrics}


rows = np.random.default_rng(0).normal(2.0, 3.0, size=(30, 6)).astype("float32")
model = DiffusionModel()
model.normalizer.adapt(rows)
model.compile(optimizer=keras.optimizers.AdamW(1e-2, weight_decay=1e-3), loss=keras.losses.mean_absolute_error)
history = model.fit(rows[:20], batch_size=BATCH, epochs=2, shuffle=False, validation_data=(rows[20:],))
