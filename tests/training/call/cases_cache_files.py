"""Workers that keep what they read in files. Every function runs in each worker."""

from __future__ import annotations

import os

import keras
import numpy as np
import tensorflow as tf

import tfscale


def fits(folder: str) -> dict[str, str]:
    """What `fit` says, by the file."""
    dp = tfscale.DataParallel(global_batch=6, seed=1)
    names = {"shared": f"{folder}/shared", "own": f"{folder}/own-{dp.rank}", "memory": ""}
    found = {name: _fit(dp, file) for name, file in names.items()}
    found["written"] = _fit(dp, names["own"])
    # Of no other worker's, but whole: it is only read.
    found["whole"] = _fit(dp, f"{folder}/own-0")
    assert not os.path.exists(f"{folder}/shared.index")
    return found


def _fit(dp: tfscale.DataParallel, file: str) -> str:
    rows = np.ones((12, 4), "float32"), np.ones((12, 1), "float32")
    data = tf.data.Dataset.from_tensor_slices(rows).cache(file).batch(6)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
        model.compile("sgd", "mse")
    try:
        model.fit(data, epochs=2, verbose=0, validation_data=data)
    except tfscale.DataError as error:
        return str(error)
    return "trained"
