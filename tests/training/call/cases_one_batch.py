"""A batch that was looked at and then trained on, as its neighbours are; in a process of its own."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.gpu.devices import take_rows_as_on_gpus

_ROWS, _BATCH = 44, 12


class Own(keras.layers.Layer):
    """A layer for which the first step is looked at, and that notes of how many rows it is traced for training."""

    traced: ClassVar[list[int | None]] = []

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.traced.append(inputs.shape[0])
        return 1.5 * inputs


def history(num_replicas: int, kind: str, ahead: bool) -> tuple[dict[str, list[float]], list[int | None]]:
    """The logs of two outputs, and of how many rows steps were traced.

    Args:
        num_replicas: 0 for plain Keras.
        kind: Of the input: `"dense"`, `"sparse"`, or `"of any length"`, padded in each batch.
        ahead: Whether rows are copied to replicas ahead of time, as on GPUs.
    """
    if ahead:
        take_rows_as_on_gpus()
    if num_replicas:
        tfscale.simulate_replicas(num_replicas)
    keras.utils.set_random_seed(1)
    dp = tfscale.DataParallel(global_batch=_BATCH) if num_replicas else None
    with contextlib.nullcontext() if dp is None else dp.scope():
        model = _model(kind)
        model = model if dp is None else dp.prepare(model)
        losses = {"a": "mse", "b": keras.losses.CategoricalCrossentropy(from_logits=True)}
        model.compile("sgd", losses)
    fitted = model.fit(_data(kind), epochs=2, shuffle=False, verbose=0)
    return fitted.history, Own.traced


def _model(kind: str) -> keras.Model:
    layers = keras.layers
    if kind == "of any length":
        inputs = keras.Input((None, 6))
        features = layers.GlobalMaxPooling1D()(layers.Dense(6)(inputs))
    else:
        inputs = keras.Input((6,), sparse=kind == "sparse")
        features = layers.Dense(6)(inputs)
    features = Own()(features)
    return keras.Model(inputs, {"a": layers.Dense(1, name="a")(features), "b": layers.Dense(4, name="b")(features)})


def _data(kind: str) -> tf.data.Dataset:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(_ROWS, 6)) * (rng.random((_ROWS, 6)) < 0.5)).astype("float32")
    labels = {
        "a": rng.uniform(size=(_ROWS, 1)).astype("float32"),
        "b": np.eye(4, dtype="float32")[rng.integers(0, 4, _ROWS)],
    }
    if kind == "of any length":
        lengths = np.arange(_ROWS) % 5 + 1
        data = tf.data.Dataset.from_tensor_slices(((rows, lengths), labels))
        data = data.map(lambda given, y: (tf.tile(given[0][None], [given[1], 1]), y))
        return data.padded_batch(_BATCH)
    found = tf.sparse.from_dense(rows) if kind == "sparse" else rows
    return tf.data.Dataset.from_tensor_slices((found, labels)).batch(_BATCH)
