"""Batch normalization that gets the masks of padded sequences, called twice in one model."""

import keras
import numpy as np
from keras import layers

BATCH = 8
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)

x = rng.normal(size=(29, 5, 3)).astype("float32")
for i in range(29):
    x[i, 1 + i % 5 :] = 0
y = rng.normal(size=(29, 1)).astype("float32")
inp = keras.Input((5, 3))
masked = layers.Masking()(inp)
shared = layers.BatchNormalization(momentum=0.5)
h = shared(layers.TimeDistributed(layers.Dense(4))(masked))
h = layers.LSTM(4, return_sequences=True)(h)
h = shared(h)
h = layers.GRU(3)(h)
model = keras.Model(inp, layers.Dense(1)(h))
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, validation_data=(x[:9], y[:9]))
predictions = model.predict(x, batch_size=BATCH)
