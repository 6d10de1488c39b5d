"""Gradients that are accumulated by hand in variables, over two batches of different size."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(40)


class Accumulating(keras.Model):
    def __init__(self, *args, n_gradients=2, **kwargs):
        super().__init__(*args, **kwargs)
        self.n_gradients = n_gradients
        self.n_acum_step = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False, name="count")
        self.gradient_accumulation = [
            self.add_weight(shape=v.shape, initializer="zeros", trainable=False, name=f"sum_{i}")
            for i, v in enumerate(list(self.trainable_variables))
        ]

    def train_step(self, data):
        x, y = data
        self.n_acum_step.assign_add(1)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        for total, gradient in zip(self.gradient_accumulation, gradients):
            total.assign_add(gradient)
        tf.cond(tf.equal(self.n_acum_step, self.n_gradients), self.apply_accumulated, lambda: None)
        return {"loss": loss, **self.compute_metrics(x, y, y_pred)}

    def apply_accumulated(self):
        gradients = [tf.convert_to_tensor(total) / self.n_gradients for total in self.gradient_accumulation]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.n_acum_step.assign(0)
        for total in self.gradient_accumulation:
            total.assign(tf.zeros(total.shape, total.dtype))


inputs = keras.Input((4,))
model = Accumulating(inputs, layers.Dense(1)(layers.Dense(6, activation="tanh")(inputs)))
model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
model.optimizer.build(model.trainable_variables)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(28, 4)).astype("float32"), rng.normal(size=(28, 1)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
