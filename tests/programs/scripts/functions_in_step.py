"""A custom step made of functions: one for the loss, one for the gradients, one with an input signature."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(66)
summed = keras.losses.MeanAbsoluteError(reduction="sum")


@tf.function(reduce_retracing=True)
def smoothness(outputs):
    return tf.reduce_mean(tf.reduce_sum(tf.square(outputs[:, 1:] - outputs[:, :-1]), axis=-1))


class Trainer(keras.Model):
    def __init__(self, network):
        super().__init__()
        self.network = network
        self.error = keras.metrics.MeanSquaredError(name="error")

    def call(self, inputs):
        return self.network(inputs)

    @tf.function(input_signature=[tf.TensorSpec((None, 6)), tf.TensorSpec((None, 4))])
    def gradients_of(self, x, y):
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = 0.1 * summed(y, outputs) + smoothness(outputs)
        self.error.update_state(y, outputs)
        return loss, tape.gradient(loss, self.trainable_variables)

    def train_step(self, data):
        loss, gradients = self.gradients_of(*data)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss, "error": self.error.result()}


rng = np.random.default_rng(0)
x, y = rng.normal(size=(31, 6)).astype("float32"), rng.normal(size=(31, 4)).astype("float32")
model = Trainer(keras.Sequential([layers.Dense(8, activation="tanh"), layers.Dense(4)]))
model.compile("adam")
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
predictions = model.predict(x, batch_size=BATCH)
