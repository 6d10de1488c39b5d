"""keras#19891: `evaluate` and `fit` give other results with another number of replicas."""

import keras
import numpy as np
from keras import layers

BATCH = 12
REPORTED = "keras#19891"
keras.utils.set_random_seed(19891)

rng = np.random.default_rng(0)
x, y = rng.uniform(-1, 1, (31, 1)).astype("float32"), rng.uniform(-1, 1, (31, 10)).astype("float32")
inputs = keras.Input((1,))
model = keras.Model(inputs, layers.Dense(10, kernel_regularizer="l2")(inputs))
model.compile(optimizer="sgd", loss="mse")
before = model.predict(x, batch_size=BATCH)
results = model.evaluate(x, y, batch_size=BATCH)
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
after = model.predict(x, batch_size=BATCH)
