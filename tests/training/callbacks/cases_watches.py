"""Two workers: one is late, one is corrupted. Every function runs in each worker."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import keras
import numpy as np

import tfscale
from tests.training.callbacks.cases_drift import BATCH, X, Y, _Corrupt, _dense

LATE_S = 3.0


def watched() -> dict[str, Any]:
    """What a late worker and a corrupted one make of a run."""
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    with dp.scope():
        model = dp.prepare(_dense())
        model.compile(keras.optimizers.Adam(0.01), "mse")
    kinds = [type(callback).__name__ for callback in dp.callbacks()]
    messages = _Messages()
    logging.getLogger("tfscale").addHandler(messages)
    _fit(model, *dp.callbacks())
    quiet = list(messages.said)
    _fit(model, tfscale.callbacks.StallWatch(1.0), _Late(dp))
    late = messages.said[len(quiet) :]
    drift = tfscale.callbacks.DriftWatch(every_steps=2)
    error = _fit(model, drift, tfscale.callbacks.StallWatch(60), _Corrupt(dp, 1, 0.5))
    threads = [thread.name for thread in threading.enumerate() if "stall" in thread.name]
    return {"kinds": kinds, "quiet": quiet, "late": late, "error": error, "threads": threads}


def _fit(model: keras.Model, *callbacks: Any) -> str:
    try:
        model.fit(X, Y, shuffle=False, verbose=0, callbacks=list(callbacks))
    except tfscale.DriftError as error:
        return str(error)
    return ""


class _Late(keras.callbacks.Callback):
    def __init__(self, dp: Any):
        super().__init__()
        self._dp = dp

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        if batch == 4 and self._dp.rank == 1:
            time.sleep(LATE_S)
        if batch == 8:
            # Time to see that it goes on.
            time.sleep(0.7)


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def step_that_does_not_end(num_replicas: int) -> tuple[list[str], list[str]]:
    """One worker alone: what it says of a slow step, and which threads a failed `fit` leaves."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH)
    with dp.scope():
        model = dp.prepare(_dense())
        model.compile("sgd", "mse")
    messages = _Messages()
    logging.getLogger("tfscale").addHandler(messages)

    def data() -> Any:
        yield X[:BATCH], Y[:BATCH]
        time.sleep(2.0)
        raise ValueError("no more")

    signature = tuple(_spec(array) for array in (X, Y))
    dataset = _from_generator(data, signature)
    try:
        model.fit(dataset, verbose=0, callbacks=[tfscale.callbacks.StallWatch(1.0)])
    except Exception:
        messages.said.append("failed")
    return messages.said, [thread.name for thread in threading.enumerate() if "stall" in thread.name]


def _spec(array: np.ndarray) -> Any:
    import tensorflow as tf

    return tf.TensorSpec((BATCH, *array.shape[1:]), array.dtype)


def _from_generator(data: Any, signature: Any) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_generator(data, output_signature=signature)
