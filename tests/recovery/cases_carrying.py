"""One `fit` whose saves are watched. Every function runs in a process of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfscale
from tfscale.recovery.carrying import SaveWatcher, pack, unpack

X = np.random.default_rng(0).normal(size=(48, 4)).astype("float32")


class _Watcher(SaveWatcher):
    def __init__(self, kept: Path, wants_at: int | None):
        super().__init__()
        self.told: list[tuple[int, bool]] = []
        self.began_at = -1
        self._kept, self._wants_at = kept, wants_at

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        if self.began_at < 0:
            self.began_at = int(self.model.optimizer.iterations.numpy())

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        if self.began_at < 0:
            self.began_at = int(self.model.optimizer.iterations.numpy())

    def bring_back(self, directory: Any) -> None:
        if self._kept.exists():
            unpack(self._kept, directory)

    def wants_save(self) -> bool:
        wants = self._wants_at is not None and int(self.model.optimizer.iterations.numpy()) >= self._wants_at
        self._wants_at = None if wants else self._wants_at
        return wants

    def on_save(self, directory: Any, steps: int) -> None:
        self.told.append((steps, directory is not None))
        if directory is not None:
            pack(directory, directory / "upload")
            shutil.rmtree(self._kept, ignore_errors=True)
            shutil.copytree(directory / "upload", self._kept)


def train(directory: str, kept: str, wants_at: int | None) -> dict[str, Any]:
    dp = tfscale.DataParallel(global_batch=8, seed=1)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
        model.compile(keras.optimizers.SGD(0.05), "mse")
    watcher = _Watcher(Path(kept), wants_at)
    callbacks = [watcher, tfscale.callbacks.Recovery(directory, every_steps=1000)]
    model.fit(dp.dataset((X, X.sum(1, keepdims=True)), shuffle=True), epochs=2, verbose=0, callbacks=callbacks)
    return {"told": watcher.told, "began_at": watcher.began_at, "weights": model.get_weights()[0]}
