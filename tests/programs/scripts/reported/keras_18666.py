"""keras#18666: LossScaleOptimizer fails under MirroredStrategy, because `merge_call` is called in a condition."""

import keras
import numpy as np
from keras import layers

BATCH = 8
REPORTED = "keras#18666"
keras.utils.set_random_seed(18666)

model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="relu"), layers.Dense(1)])
optimizer = keras.optimizers.LossScaleOptimizer(
    keras.optimizers.Adam(1e-2), initial_scale=1024.0, dynamic_growth_steps=3
)
model.compile(optimizer=optimizer, loss="mse", metrics=["mae"])
rng = np.random.default_rng(0)
x, y = rng.normal(size=(21, 5)).astype("float32"), rng.normal(size=(21, 1)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
scale = keras.ops.convert_to_numpy(optimizer.dynamic_scale)
