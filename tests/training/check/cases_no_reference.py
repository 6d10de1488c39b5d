"""Steps that do not run with a known number of rows. Every function runs in its own process."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
from keras import ops

import tfscale

BATCH = 8
X = np.random.default_rng(73).normal(size=(29, 5))
Y = X.sum(1, keepdims=True)


def _trimmed(y_true: Any, y_pred: Any) -> Any:
    """The mean of the smaller errors: `arange` of a Python number has another type than of a tensor, in float64."""
    errors = ops.sort(ops.abs(y_true - y_pred)[:, 0])
    kept = ops.cast(ops.ceil(0.7 * ops.cast(ops.shape(errors)[0], "float64")), "int32")
    is_kept = ops.cast(ops.arange(ops.shape(errors)[0]) < kept, errors.dtype)
    return ops.sum(errors * is_kept) / ops.cast(kept, errors.dtype)


def trimmed_in_float64() -> tuple[list[Any], list[Any]]:
    """The weights that three replicas train, and one device."""
    keras.config.set_floatx("float64")
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    found = []
    for is_ours in (True, False):
        keras.utils.set_random_seed(1)
        with dp.scope() if is_ours else contextlib.nullcontext():
            model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.05), _trimmed)
            if is_ours:
                dp.prepare(model)
        model.fit(X, Y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    return found[0], found[1]
