"""Options of Keras: gradient accumulation, several steps per execution, clipping, then run_eagerly in a second fit."""

import keras
import numpy as np
from keras import layers

BATCH = 8
keras.utils.set_random_seed(64)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(44, 5)).astype("float32"), rng.normal(size=(44, 2)).astype("float32")
model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(2)])
optimizer = keras.optimizers.Adam(1e-2, gradient_accumulation_steps=2, clipnorm=0.5)
model.compile(optimizer, loss="mse", metrics=["mae"], steps_per_execution=2)
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
model.compile(keras.optimizers.Lion(1e-3), loss="log_cosh", metrics=["mae"], run_eagerly=True)
eager_history = model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False)
