"""A classifier that takes strings: `TextVectorization` in the model fills each batch up to its longest text."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(1)

rng = np.random.default_rng(0)
texts = np.array([" ".join(rng.choice(list("abcde"), rng.integers(2, 9))) for _ in range(30)])
labels = rng.integers(0, 2, 30).astype("float32")

inputs = keras.Input((), dtype="string")
x = keras.layers.TextVectorization(vocabulary=list("abcde"))(inputs)
x = keras.layers.Embedding(7, 4)(x)
x = keras.layers.LSTM(5)(x)
outputs = keras.layers.Dense(1, "sigmoid")(x)
model = keras.Model(inputs, outputs)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(tf.data.Dataset.from_tensor_slices((texts, labels)).batch(BATCH), epochs=2, verbose=0).history
probabilities = model.predict(tf.data.Dataset.from_tensor_slices(texts).batch(BATCH), verbose=0)
