"""Workers whose callbacks do another thing on each. Every function runs in each worker."""

from __future__ import annotations

import logging
import time
from typing import Any

import keras

import tfscale
from tests.training.callbacks.cases_drift import BATCH, X, Y, _dense
from tests.training.callbacks.cases_watches import _Messages


def fits() -> dict[str, tuple[str, list[str]]]:
    """What `fit` says, and what is logged, by what a callback does on worker 1 alone."""
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    found = {}
    for name, callbacks in {
        "nothing": [],
        "rounding": [_Weights(dp.rank, 1e-4)],
        "tolerated": [_Rate(dp.rank), tfscale.callbacks.DriftWatch(every_steps=100, tolerance=10.0)],
        "rate": [_Rate(dp.rank)],
        "rate, beside a watch": [_Rate(dp.rank), tfscale.callbacks.DriftWatch()],
        "weights": [_Weights(dp.rank, 0.5)],
        "rate, in a list": keras.callbacks.CallbackList([_Rate(dp.rank)], add_history=True),
    }.items():
        with dp.scope():
            model = dp.prepare(_dense())
            model.compile(keras.optimizers.SGD(0.001), "mse")
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.set_model(model)
        messages = _Messages()
        logging.getLogger("tfscale").addHandler(messages)
        found[name] = _fit(model, callbacks), [said for said in messages.said if "differ" in said]
        logging.getLogger("tfscale").removeHandler(messages)
    return found


def late() -> list[str]:
    """What is said of a worker whose callback takes long at the end of an epoch."""
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    with dp.scope():
        model = dp.prepare(_dense())
        model.compile("sgd", "mse")
    messages = _Messages()
    logging.getLogger("tfscale").addHandler(messages)
    # The second epoch leaves time to say that it goes on.
    slow = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(epoch or 3.0 * dp.rank))
    _fit(model, [slow, tfscale.callbacks.StallWatch(1.0)])
    return messages.said


def _fit(model: keras.Model, callbacks: Any) -> str:
    try:
        model.fit(X, Y, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    except tfscale.DriftError as error:
        return str(error)
    return ""


class _Rate(keras.callbacks.Callback):
    """A rate that only this worker has, as one of a clock."""

    def __init__(self, rank: int):
        super().__init__()
        self._rank = rank

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.model.optimizer.learning_rate = 0.001 * (1 + self._rank)


class _Weights(keras.callbacks.Callback):
    """Weights that only this worker has, as those of a file that is not everywhere."""

    def __init__(self, rank: int, share: float):
        super().__init__()
        self._rank, self._share = rank, share

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        if self._rank == 1:
            self.model.set_weights([weight * (1 + self._share) for weight in self.model.get_weights()])
