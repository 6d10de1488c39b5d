"""Sparse inputs, as of a bag of words: TensorFlow looks up each different word of the batch once."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(1)
rng = np.random.default_rng(0)
dense = (rng.uniform(size=(44, 30)) < 0.1).astype("float32")
y = (dense[:, :10].sum(1) > 0).astype("float32")
inputs = keras.Input((30,), sparse=True)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(layers.Dense(8, activation="relu")(inputs)))
model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
data = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(dense), y)).batch(BATCH)
history = model.fit(data, epochs=2, verbose=0)
