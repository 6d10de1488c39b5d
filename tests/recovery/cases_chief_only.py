"""Callbacks that write files, on two workers. Every function is called by both."""

import os
import warnings
from pathlib import Path

import keras
import numpy as np

import tfscale


class Held(keras.Model):
    """Holds a metric, whose state is saved with it and belongs to all workers together."""

    def __init__(self, **options):
        super().__init__(**options)
        self.dense = keras.layers.Dense(1)
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        self.seen.update_state(1.0)
        return super().train_step(data)


def fit(directory: str) -> dict[str, object]:
    """Fits with what `dp.callbacks` makes of Keras's callbacks that write files."""
    dp = tfscale.DataParallel(global_batch=4, seed=1)
    with dp.scope():
        model = dp.prepare(Held())
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    root = Path(directory)
    calls = []
    told = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: calls.append("train"),
        on_epoch_end=lambda epoch, logs: calls.append(("epoch", epoch, sorted(logs))),
        on_train_batch_end=lambda batch, logs: calls.append(("batch", batch)),
    )
    writing = [
        keras.callbacks.ModelCheckpoint(root / "{epoch}.keras"),
        keras.callbacks.ModelCheckpoint(root / "{epoch}.weights.h5", save_weights_only=True),
        keras.callbacks.CSVLogger(root / "log.csv"),
    ]
    own = [keras.callbacks.EarlyStopping("loss"), tfscale.callbacks.ChiefOnly(told)]
    callbacks = dp.callbacks([*writing, *own])
    x = np.arange(6, dtype="float32")[:, None]
    model.fit(x, x[:, 0], epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    weights = model.get_weights()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        unwrapped = [
            keras.callbacks.CSVLogger(root.parent / f"log-{dp.rank}.csv"),
            keras.callbacks.EarlyStopping("loss"),
        ]
        model.fit(x, x[:, 0], shuffle=False, verbose=0, callbacks=unwrapped)
        model.fit(x, x[:, 0], shuffle=False, verbose=0, callbacks=dp.callbacks(unwrapped))
    refused = ""
    try:
        dp.callbacks([keras.callbacks.BackupAndRestore(root / "backup")])
    except tfscale.RecoveryError as error:
        refused = str(error)
    return {
        "kinds": [type(each).__name__ for each in callbacks],
        "calls": calls,
        "files": sorted(os.listdir(directory)) if dp.is_chief else None,
        "weights": weights,
        "refused": refused,
        "said": [str(each.message) for each in said],
    }
