"""A first step that is looked at, where one worker still has a model that is gone on the others."""

from __future__ import annotations

import gc
from typing import Any

import keras
import numpy as np

import tfscale

ROWS = np.linspace(-1.0, 1.0, 48).reshape(12, 4).astype("float32")


class Checked(keras.Sequential):
    """Its first step is looked at."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        return keras.ops.mean((y_pred - y) ** 2)


def fits() -> list[float]:
    """The losses of the second of two models."""
    dp = tfscale.DataParallel(global_batch=6)
    first = _fitted(dp, keras.Sequential)
    if tfscale.resolve_cluster().is_chief:
        del first
    gc.collect()
    return [float(loss) for loss in _fitted(dp, Checked).history.history["loss"]]


def _fitted(dp: tfscale.DataParallel, kind: type[keras.Sequential]) -> Any:
    with dp.scope():
        model = dp.prepare(kind([keras.Input((4,)), keras.layers.Dense(1)]))
        model.compile("sgd", "mse", metrics=["mae"])
    model.fit(ROWS, ROWS[:, :1], batch_size=6, epochs=2, verbose=0)
    return model
