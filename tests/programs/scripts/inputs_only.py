"""Data of inputs alone, (x,): an autoencoder whose compute_loss compares the output with the input."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(45)


class Autoencoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(4, activation="tanh")])
        self.decoder = keras.Sequential([layers.Dense(7)])

    def call(self, x):
        return self.decoder(self.encoder(x))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return super().compute_loss(x, x, y_pred, sample_weight, training)


rows = np.random.default_rng(0).normal(size=(28, 7)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((rows,)).batch(BATCH)
model = Autoencoder()
model.compile(optimizer=keras.optimizers.RMSprop(0.01), loss=keras.losses.MeanSquaredError())
history = model.fit(dataset, epochs=3)
results = model.evaluate(dataset, return_dict=True)
codes = model.encoder.predict(rows)
