"""tensorflow#62831: `load_weights` under MirroredStrategy ends in a TypeError."""

import os
import tempfile

import keras
import numpy as np

BATCH = 8
REPORTED = "tensorflow#62831"
keras.utils.set_random_seed(62831)

path = os.path.join(tempfile.mkdtemp(), "model.weights.h5")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(21, 3)).astype("float32"), rng.normal(size=(21, 1)).astype("float32")
first = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
first.compile(optimizer="sgd", loss="mse")
first.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False)
first.save_weights(path)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
model.load_weights(path)
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
