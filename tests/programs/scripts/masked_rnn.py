"""A bidirectional LSTM on padded sequences: masks by the embedding, a label for every time step."""

import keras
import numpy as np
from keras import layers

BATCH = 8
keras.utils.set_random_seed(28)

rng = np.random.default_rng(0)
sequences = [rng.integers(1, 15, rng.integers(1, 7)).tolist() for _ in range(28)]
x = keras.utils.pad_sequences(sequences, maxlen=6, padding="post")
y = (x % 3).astype("int32")

inputs = keras.Input(shape=(None,), dtype="int32")
h = layers.Embedding(15, 6, mask_zero=True)(inputs)
h = layers.Bidirectional(layers.LSTM(5, return_sequences=True))(h)
h = layers.GRU(6, return_sequences=True)(h)
model = keras.Model(inputs, layers.Dense(3, activation="softmax")(h))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], weighted_metrics=["accuracy"])
history = model.fit(x[:20], y[:20], batch_size=BATCH, epochs=2, shuffle=False, validation_data=(x[20:], y[20:]))
predictions = model.predict(x)
