"""Real NVP: a density by coupling layers and their log determinants, its own train_step and test_step, two outputs."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, regularizers
from sklearn.datasets import make_moons

BATCH = 16
WORKERS = True
keras.utils.set_random_seed(4)
data = make_moons(60, noise=0.05, random_state=0)[0].astype("float32")
norm = layers.Normalization()
norm.adapt(data)
normalized_data = norm(data).numpy()
output_dim, reg = 8, 0.01


def Coupling(input_shape):
    input = keras.layers.Input(shape=(input_shape,))
    t = input
    for _ in range(2):
        t = keras.layers.Dense(output_dim, activation="relu", kernel_regularizer=regularizers.l2(reg))(t)
    t = keras.layers.Dense(input_shape, activation="linear", kernel_regularizer=regularizers.l2(reg))(t)
    s = input
    for _ in range(2):
        s = keras.layers.Dense(output_dim, activation="relu", kernel_regularizer=regularizers.l2(reg))(s)
    s = keras.layers.Dense(input_shape, activation="tanh", kernel_regularizer=regularizers.l2(reg))(s)
    return keras.Model(inputs=input, outputs=[s, t])


class RealNVP(keras.Model):
    def __init__(self, num_coupling_layers):
        super().__init__()
        self.num_coupling_layers = num_coupling_layers
        self.masks = np.array([[0, 1], [1, 0]] * (num_coupling_layers // 2), dtype="float32")
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.layers_list = [Coupling(2) for i in range(num_coupling_layers)]

    @property
    def metrics(self):
        return [self.loss_tracker]

    def call(self, x, training=True):
        log_det_inv = 0
        direction = 1
        if training:
            direction = -1
        for i in range(self.num_coupling_layers)[::direction]:
            x_masked = x * self.masks[i]
            reversed_mask = 1 - self.masks[i]
            s, t = self.layers_list[i](x_masked)
            s *= reversed_mask
            t *= reversed_mask
            gate = (direction - 1) / 2
            x = reversed_mask * (x * keras.ops.exp(direction * s) + direction * t * keras.ops.exp(gate * s)) + x_masked
            log_det_inv += gate * keras.ops.sum(s, axis=1)
        return x, log_det_inv

    def log_loss(self, x):
        y, logdet = self(x)
        log_prob = -0.5 * keras.ops.sum(y**2, axis=-1) - np.log(2 * np.pi)
        log_likelihood = log_prob + logdet
        return -keras.ops.mean(log_likelihood)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.log_loss(data)
        g = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(g, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def test_step(self, data):
        loss = self.log_loss(data)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


model = RealNVP(num_coupling_layers=4)
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.01))
history = model.fit(normalized_data, batch_size=BATCH, epochs=2, validation_split=0.2, shuffle=False)
z, _ = model(normalized_data)
x, _ = model.predict(np.random.default_rng(0).normal(size=(30, 2)).astype("float32"))
