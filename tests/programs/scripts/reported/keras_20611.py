"""keras#20611: a model with dropout cannot be made under MirroredStrategy."""

import keras
import numpy as np
from keras import layers

BATCH = 8
REPORTED = "keras#20611"
keras.utils.set_random_seed(20611)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(30, 6)).astype("float32"), rng.normal(size=(30, 1)).astype("float32")
model = keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="gelu"), layers.Dropout(0.2), layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
results = model.evaluate(x, y, batch_size=BATCH)
predictions = model.predict(x, batch_size=BATCH)
# What is dropped is not the same on any number of devices: trained without.
model.layers[1].rate = 0.0
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
