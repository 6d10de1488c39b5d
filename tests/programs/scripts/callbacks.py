"""Many callbacks at once: early stopping, plateau, schedule, checkpoint, CSV, and one that predicts by itself."""

import os
import tempfile

import keras
import numpy as np
from keras import layers

BATCH = 8
keras.utils.set_random_seed(26)

directory = tempfile.mkdtemp()
rng = np.random.default_rng(0)
x, y = rng.normal(size=(36, 5)).astype("float32"), rng.normal(size=(36, 1)).astype("float32")
batch_losses, probes = [], []


class Probe(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        batch_losses.append(logs["loss"])

    def on_epoch_end(self, epoch, logs=None):
        probes.append(self.model.predict(x[:5], verbose=0))


model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse", metrics=["mae"])
path = os.path.join(directory, "best.keras")
history = model.fit(
    x,
    y,
    batch_size=BATCH,
    epochs=6,
    shuffle=False,
    validation_split=0.4,
    callbacks=[
        Probe(),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1),
        keras.callbacks.EarlyStopping(monitor="val_mae", patience=2, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(path, monitor="val_loss", save_best_only=True),
        keras.callbacks.CSVLogger(os.path.join(directory, "log.csv")),
        keras.callbacks.TerminateOnNaN(),
    ],
)
best = keras.models.load_model(path)
best_predictions = best.predict(x[:7])
results = best.evaluate(x, y, batch_size=BATCH, return_dict=True)
