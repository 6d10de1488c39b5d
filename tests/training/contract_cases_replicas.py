"""Cases of the contract that speak of the replicas themselves; what must be is known otherwise."""

from __future__ import annotations

import contextlib
import tempfile
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.exact.cases_randomness import AlwaysRandom
from tests.training.contract import Case, Outcome, flat_arrays
from tests.training.models import TARGETS, X

# Divides by 1, 2, 3 and 4 replicas.
_ROWS = 24


def _masks(dp: Any) -> Outcome:
    """How many pairs of replicas draw the same mask."""
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((100,)), AlwaysRandom(keras.layers.Dropout(0.5, seed=7))]))
    x = np.ones((_ROWS, 100), "float32")
    masks = model.predict(x, batch_size=_ROWS, verbose=0).reshape(dp.num_replicas, -1)
    num_equal = dp.num_replicas - len(np.unique(masks, axis=0))
    return {"identical masks": [np.array(num_equal)]}


def _local_statistics(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(
            keras.Sequential(
                [
                    keras.Input((8,)),
                    keras.layers.BatchNormalization(momentum=0.0, trainable=True),
                    keras.layers.Dense(2),
                ]
            )
        )
        model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(X[:_ROWS], TARGETS[:_ROWS], batch_size=_ROWS, verbose=0, shuffle=False)
    mean, _ = flat_arrays(model.layers[0].non_trainable_variables)
    return {"moving averages": [mean]}


def _mean_of_means(dp: Any) -> Outcome:
    """The mean of the means of equal shares is the mean, for any number of replicas."""
    del dp
    return {"moving averages": [X[:_ROWS].mean(axis=0)]}


class _Seen(keras.losses.Loss):
    """With rate 1 and one weight per example, a weight becomes the number of times that its example was seen."""

    def __init__(self) -> None:
        super().__init__(reduction="sum")

    def call(self, y_true: Any, y_pred: Any) -> Any:
        del y_true
        return -y_pred[:, 0]


_EXAMPLES, _EPOCHS = 58, 2


def _times_seen(dp: Any) -> Outcome:
    examples = (np.eye(_EXAMPLES, dtype="float32"), np.zeros(_EXAMPLES, "float32"))
    if hasattr(dp, "dataset"):
        data = dp.dataset(examples, shuffle=True)
    else:
        data = tf.data.Dataset.from_tensor_slices(examples).shuffle(_EXAMPLES).batch(24)
    with dp.scope():
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = dp.prepare(keras.Sequential([keras.Input((_EXAMPLES,)), dense]))
        model.compile(keras.optimizers.SGD(1.0), _Seen())
    model.fit(data, epochs=_EPOCHS, verbose=0)
    return {"times seen": flat_arrays(model.trainable_variables)}


class _PlugError(Exception):
    """Somebody pulled the plug."""


class _Plug(keras.callbacks.Callback):
    def __init__(self, calls: int) -> None:
        super().__init__()
        self._left = calls

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if self._left < 0:
            raise _PlugError


def _times_seen_interrupted(dp: Any) -> Outcome:
    """Three steps an epoch; the plug is pulled behind the first of the second epoch."""
    examples = (np.eye(_EXAMPLES, dtype="float32"), np.zeros(_EXAMPLES, "float32"))
    with tempfile.TemporaryDirectory() as directory:
        for calls in (4, 99):
            with dp.scope():
                dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
                model = dp.prepare(keras.Sequential([keras.Input((_EXAMPLES,)), dense]))
                model.compile(keras.optimizers.SGD(1.0), _Seen())
            if hasattr(dp, "dataset"):
                backup = tfscale.callbacks.Recovery(directory, every_steps=1)
            else:
                backup = keras.callbacks.BackupAndRestore(directory, save_freq=1)
            data = tf.data.Dataset.from_tensor_slices(examples).batch(24)
            with contextlib.suppress(_PlugError):
                model.fit(data, epochs=_EPOCHS, verbose=0, callbacks=[backup, _Plug(calls)])
    return {"times seen": flat_arrays(model.trainable_variables)}


CASES: dict[str, Case] = {
    "interrupted, times seen": Case(
        _times_seen_interrupted, reference=lambda dp: {"times seen": [np.full((_EXAMPLES, 1), _EPOCHS, "float32")]}
    ),
    "shuffled, times seen": Case(
        _times_seen, reference=lambda dp: {"times seen": [np.full((_EXAMPLES, 1), _EPOCHS, "float32")]}
    ),
    "dropout on each replica": Case(_masks, reference=lambda dp: {"identical masks": [np.array(0)]}),
    "batch norm, local": Case(_local_statistics, reference=_mean_of_means, batch_norm="local"),
}
