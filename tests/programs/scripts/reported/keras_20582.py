"""keras#20582: `gradient_accumulation_steps` fails under tf.distribute."""

import keras
import numpy as np
from keras import layers

BATCH = 8
REPORTED = "keras#20582"
keras.utils.set_random_seed(20582)

model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
model.compile(optimizer=keras.optimizers.AdamW(1e-2, gradient_accumulation_steps=3), loss="mse")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(37, 5)).astype("float32"), rng.normal(size=(37, 1)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
