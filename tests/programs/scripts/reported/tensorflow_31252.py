"""tensorflow#31252: a model cannot be checkpointed under MultiWorkerMirroredStrategy."""

import os
import tempfile

import keras
import numpy as np
from keras import layers

BATCH = 8
WORKERS = True
REPORTED = "tensorflow#31252"
keras.utils.set_random_seed(31252)

directory = tempfile.mkdtemp()
newest, best = os.path.join(directory, "newest.weights.h5"), os.path.join(directory, "best.keras")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(27, 4)).astype("float32"), rng.normal(size=(27, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), layers.Dense(6, activation="tanh"), layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(0.02), loss="mse")
callbacks = [
    keras.callbacks.ModelCheckpoint(newest, save_weights_only=True),
    keras.callbacks.ModelCheckpoint(best, monitor="loss", save_best_only=True),
]
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, callbacks=callbacks)
restored = keras.models.load_model(best).predict(x[:5])
