"""Layers that learn by their own optimizers, in a list: each has its local loss, as in forward-forward learning."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(39)


class FFDense(layers.Layer):
    def __init__(self, units, optimizer):
        super().__init__()
        self.dense = layers.Dense(units, activation="relu")
        self.optimizer = optimizer
        self.loss_metric = keras.metrics.Mean()

    def call(self, x):
        return self.dense(x / (ops.norm(x, axis=-1, keepdims=True) + 1e-4))

    def forward_forward(self, x_pos, x_neg):
        with tf.GradientTape() as tape:
            g_pos = ops.mean(self(x_pos) ** 2, axis=1)
            g_neg = ops.mean(self(x_neg) ** 2, axis=1)
            loss = ops.log(1 + ops.exp(ops.concatenate([0.5 - g_pos, g_neg - 0.5], axis=0)))
            mean_loss = ops.mean(loss)
        self.loss_metric.update_state(loss)
        gradients = tape.gradient(mean_loss, self.dense.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.dense.trainable_weights))
        return ops.stop_gradient(self(x_pos)), ops.stop_gradient(self(x_neg)), self.loss_metric.result()


class FFNetwork(keras.Model):
    def __init__(self):
        super().__init__()
        self.layer_list = [FFDense(8, keras.optimizers.Adam(0.03)), FFDense(6, keras.optimizers.SGD(0.1))]

    def call(self, x):
        for layer in self.layer_list:
            x = layer(x)
        return x

    def train_step(self, data):
        h_pos, h_neg = data
        logs = {}
        for i, layer in enumerate(self.layer_list):
            h_pos, h_neg, logs[f"loss_{i}"] = layer.forward_forward(h_pos, h_neg)
        return logs


rng = np.random.default_rng(0)
positive, negative = rng.normal(1.0, 1.0, (20, 5)).astype("float32"), rng.normal(-1.0, 1.0, (20, 5)).astype("float32")
model = FFNetwork()
model.compile()
history = model.fit(positive, negative, batch_size=BATCH, epochs=2, shuffle=False)
features = model.predict(positive)
