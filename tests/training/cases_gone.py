"""Workers of which one goes, stops, leaves or does something else. Every function runs in each worker."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

EPOCHS, STEPS, BATCH = 40, 4, 12
EPOCH, STEP = 14, 2
X = np.random.default_rng(0).normal(size=(STEPS * BATCH, 5)).astype("float32")
Y = X.sum(1, keepdims=True)


def train(fault: str, victim: int) -> None:
    """Trains until the worker `victim` does what it does; what becomes of the others is in what they write."""
    try:
        _train(fault, victim)
    except tfscale.ClusterError as error:
        _note(f"after {time.time():.2f} ours: {error}")
        _again()
        raise


def _train(fault: str, victim: int) -> None:
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    is_victim = dp.rank == victim
    units = 7 if is_victim and fault == "model" else 4
    watches = [tfscale.callbacks.StallWatch(1, ends_after_s=6)] if fault == "hang" else []
    with dp.scope():
        model = dp.prepare(
            keras.Sequential([keras.Input((5,)), keras.layers.Dense(units, activation="tanh"), keras.layers.Dense(1)])
        )
        model.compile(keras.optimizers.SGD(0.05), "mse")
    rows = len(X) - BATCH if is_victim and fault.startswith("short") else len(X)
    data = tf.data.Dataset.from_tensor_slices((X[:rows], Y[:rows])).batch(BATCH)
    if fault == "short, of unknown length":
        # Keras's, where data of unknown length have ended.
        warnings.filterwarnings("ignore", "Your input ran out of data")
        data = data.filter(lambda *_: True)
    epochs = EPOCH if is_victim and fault == "epochs" else EPOCHS
    model.fit(data, epochs=epochs, verbose=0, callbacks=[_Fault(fault if is_victim else ""), *watches])


def _again() -> None:
    """What a notebook's next cell gets to see."""
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    try:
        with dp.scope():
            model = dp.prepare(keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)]))
            model.compile("sgd", "mse")
        model.fit(X, Y, verbose=0)
    except tfscale.ClusterError as error:
        _note(f"again: {error}")


def _note(text: str) -> None:
    print(text.replace("\n", " | "), flush=True)


class _Fault(keras.callbacks.Callback):
    def __init__(self, fault: str):
        super().__init__()
        self._fault = fault
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        self._epoch = epoch + 1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        # A second of steps and more, for heartbeats to tell of them.
        time.sleep(0.03)
        if self._fault and (self._epoch, batch + 1) == (EPOCH, STEP):
            _note(f"fault {time.time():.2f}")
            _FAULTS.get(self._fault, lambda _: None)(self.model)


def _stop_training(model: keras.Model) -> None:
    model.stop_training = True


_FAULTS = {
    "killed": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "stopped": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": lambda _: sys.exit(0),
    "exit at once": lambda _: os._exit(0),
    "interrupt": lambda _: signal.raise_signal(signal.SIGINT),
    "stop_training": _stop_training,
    "hang": lambda _: time.sleep(600),
}
