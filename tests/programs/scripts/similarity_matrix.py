"""Predictions that are no rows of numbers: a table of the rows by the rows, and the names of what was found."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(25)
x = np.random.default_rng(0).normal(size=(21, 5)).astype("float32")


class Similarity(keras.Model):
    def predict_step(self, data):
        rows = self(data[0] if isinstance(data, tuple) else data)
        return tf.matmul(rows, rows, transpose_b=True)


class Named(keras.Model):
    def predict_step(self, data):
        rows = self(data[0] if isinstance(data, tuple) else data)
        best = tf.argmax(rows, axis=-1)
        return {"best": tf.reduce_max(rows, axis=-1), "name": tf.gather(tf.constant(["a", "b", "c", "d"]), best)}


inputs = keras.Input((5,))
outputs = layers.Dense(4)(inputs)
model = Similarity(inputs, outputs)
model.compile("adam", "mse")
named = Named(inputs, outputs)
named.compile("adam", "mse")
history = model.fit(x, x[:, :4], batch_size=BATCH, shuffle=False)
table = model.predict_on_batch(x[:7])
found = named.predict(x, batch_size=BATCH, verbose=0)
best, names = found["best"], [str(name) for name in found["name"]]
