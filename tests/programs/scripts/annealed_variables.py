"""A VAE whose weight of the divergence a callback raises with each batch, and whose temperature the step lowers."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(82)


class BetaVAE(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = layers.Dense(4), layers.Dense(5)
        self.beta = keras.Variable(0.0, trainable=False, name="beta")
        self.temperature = tf.Variable(1.0, trainable=False)

    def call(self, x):
        mean, log_var = ops.split(self.encoder(x), 2, axis=-1)
        divergence = ops.sum(ops.exp(log_var) + ops.square(mean) - 1 - log_var, axis=-1)
        self.add_loss(self.beta * ops.mean(divergence))
        return self.decoder(mean / self.temperature)

    def train_step(self, data):
        logs = super().train_step(data)
        self.temperature.assign(tf.maximum(0.5, self.temperature * 0.95))
        return {**logs, "temperature": self.temperature}


class Anneal(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.model.beta.assign(self.model.beta + 0.1)


x = np.random.default_rng(0).normal(size=(29, 5)).astype("float32")
model = BetaVAE()
model.compile("sgd", "mse")
history = model.fit(x, x, batch_size=BATCH, epochs=2, shuffle=False, callbacks=[Anneal()])
temperature = model.temperature
