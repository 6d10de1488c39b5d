"""tensorflow#38635: all workers save the model after training, and get in each other's way."""

import os
import tempfile

import keras
import numpy as np
from keras import layers

BATCH = 10
WORKERS = True
REPORTED = "tensorflow#38635"
keras.utils.set_random_seed(38635)

path = os.path.join(tempfile.mkdtemp(), "model.keras")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(34, 5)).astype("float32"), rng.integers(0, 2, (34, 1)).astype("float32")
model = keras.Sequential(
    [
        keras.Input((5,)),
        layers.Dense(8, activation="relu"),
        layers.Dense(4, activation="relu"),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(optimizer=keras.optimizers.Adam(), loss="binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
model.save(path)
restored = keras.models.load_model(path).predict(x)
