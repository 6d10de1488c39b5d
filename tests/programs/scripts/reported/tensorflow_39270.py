"""tensorflow#39270: `train_on_batch` fails with MirroredStrategy."""

import keras
import numpy as np
from keras import layers

BATCH = 8
REPORTED = "tensorflow#39270"
keras.utils.set_random_seed(39270)

rng = np.random.default_rng(0)
x, y = rng.uniform(size=(21, 8, 8)).astype("float32"), rng.integers(0, 10, 21)
model = keras.Sequential([keras.Input((8, 8)), layers.Flatten(), layers.Dense(12, activation="relu"), layers.Dense(10)])
model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
losses = []
for epoch in range(2):
    for start in range(0, len(x), BATCH):
        losses.append(float(model.train_on_batch(x[start : start + BATCH], y[start : start + BATCH])))
