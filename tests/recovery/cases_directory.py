"""Runs that share a directory. Every function runs in a process of its own."""

from __future__ import annotations

import pathlib
import tempfile
import time
from typing import Any

import keras
import numpy as np

import tfscale
from tests.recovery.cases_order import listening
from tests.recovery.cases_resume import BATCH, data_parallel
from tfscale.recovery.lock import DirectoryLock

ROWS = 40


def rows(count: int = ROWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(count, 3)).astype("float32")
    return x, x[:, 0]


DATA = {
    "dp.dataset": lambda dp: dp.dataset(rows(), shuffle=True),
    "more rows": lambda dp: dp.dataset(rows(80), shuffle=True),
    "other rows": lambda dp: dp.dataset(rows(seed=1), shuffle=True),
    "arrays": lambda dp: rows(),
    "fewer arrays": lambda dp: rows(24),
    "tf.data": lambda dp: dp.dataset(rows()).as_tf_data().map(lambda *row: row),
}


def fit(
    directory: str,
    name: str,
    *,
    epochs: int = 1,
    momentum: float = 0.9,
    callbacks: Any = (),
    batch: int = BATCH,
    restart: bool = False,
    **given: Any,
) -> int:
    """Trains; returns the steps that the optimizer has made, those before a restart too."""
    keras.utils.set_random_seed(1)
    dp = data_parallel(1, global_batch=batch, seed=1)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
        model.compile(keras.optimizers.SGD(0.05, momentum=momentum), "mse")
    data = DATA[name](dp)
    arguments = dict(zip("xy", data, strict=True)) if isinstance(data, tuple) else {"x": data}
    recovery = tfscale.callbacks.Recovery(directory, every_steps=2, restart=restart)
    model.fit(**arguments, epochs=epochs, verbose=0, callbacks=[recovery, *callbacks], **given)
    return int(model.optimizer.iterations.numpy())


def another_of(first: str, given: Any) -> dict[str, Any]:
    """What is said of another run in the directory of a first one, and what becomes of it with `restart`."""
    second = {"name": first, "epochs": 2, **dict(given)}
    with tempfile.TemporaryDirectory() as directory:
        fit(directory, first)
        refused = ""
        try:
            fit(directory, **second)
        except tfscale.RecoveryError as error:
            refused = str(error)
        with listening() as said:
            steps = fit(directory, **{**second, "epochs": 2 if refused else 3}, restart=True)
        return {"refused": refused, "steps": steps, "said": said}


class Inside(keras.callbacks.Callback):
    """Begins another run in the same directory while one is under way."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.directory = directory
        self.refused = ""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        try:
            fit(self.directory, "dp.dataset")
        except tfscale.RecoveryError as error:
            self.refused = str(error)


def inside(directory: str) -> str:
    """What is said of a run inside of a run."""
    callback = Inside(directory)
    fit(directory, "dp.dataset", callbacks=[callback])
    # When it has ended, others may come.
    assert DirectoryLock(pathlib.Path(directory)).take() is None
    return callback.refused


def hold(directory: str) -> None:
    """Takes a directory, and keeps it until this process is killed."""
    assert DirectoryLock(pathlib.Path(directory)).take() is None
    pathlib.Path(directory, "held").touch()
    time.sleep(600)


def second(directory: str) -> str:
    """What is said of a run in a directory that another process holds."""
    try:
        fit(directory, "dp.dataset")
    except tfscale.RecoveryError as error:
        return str(error)
    return "not refused"
