"""A train_step that makes its loss objects on the spot, and calls Keras's loss functions with a mean by hand."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(34)


class Regression(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = keras.losses.MeanSquaredError()(y, y_pred)
            loss += 0.5 * tf.reduce_mean(keras.losses.mean_absolute_error(y, y_pred))
            loss += 0.1 * tf.reduce_mean(keras.losses.get("huber")(y, y_pred))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}

    def test_step(self, data):
        x, y = data
        y_pred = self(x, training=False)
        return {"loss": keras.losses.MeanSquaredError()(y, y_pred)}


inputs = keras.Input((4,))
model = Regression(inputs, layers.Dense(1)(layers.Dense(6, activation="tanh")(inputs)))
model.compile(optimizer=keras.optimizers.SGD(0.05, nesterov=True, momentum=0.8))
rng = np.random.default_rng(0)
x, y = rng.normal(size=(28, 4)).astype("float32"), rng.normal(size=(28, 1)).astype("float32")
history = model.fit(
    x[:20],
    y[:20],
    batch_size=BATCH,
    epochs=2,
    shuffle=False,
    validation_data=(x[20:], y[20:]),
    validation_batch_size=BATCH,
)
