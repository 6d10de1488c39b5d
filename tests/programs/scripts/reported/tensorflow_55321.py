"""tensorflow#55321: a loss that divides by the global batch comes out as 1/N on N GPUs."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
REPORTED = "tensorflow#55321"
keras.utils.set_random_seed(55321)


class SumOverBatch(keras.losses.Loss):
    def __init__(self, batch_size=1, **kwargs):
        super().__init__(**kwargs)
        self.batch_size = batch_size

    def call(self, y_true, y_pred):
        error = keras.losses.mean_absolute_error(tf.squeeze(y_true, -1), tf.squeeze(y_pred, -1))
        return tf.reduce_sum(error) * (1.0 / self.batch_size)


model = keras.Sequential(
    [keras.Input((6, 1)), layers.Conv1D(8, 3, padding="same", activation="tanh"), layers.Conv1D(1, 1)]
)
model.compile(optimizer=keras.optimizers.Adam(0.01), loss=SumOverBatch(BATCH))
rng = np.random.default_rng(0)
x = rng.normal(size=(29, 6, 1)).astype("float32")
y = np.roll(x, 1, axis=1)
history = model.fit(x[:21], y[:21], batch_size=BATCH, epochs=3, shuffle=False)
results = model.evaluate(x[21:], y[21:], batch_size=BATCH)
