"""Weights that are equal, and one replica's copy that is corrupted on purpose. Each function is called in a child."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

BATCH = 16
BATCHES = 12
X = np.random.default_rng(0).integers(0, 9, size=(BATCH * BATCHES - 5, 4)).astype("float32")
Y = X.sum(axis=1)


class OwnStep(keras.Sequential):
    """A model with a training step of its own."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def _dense(cls: Any = keras.Sequential) -> keras.Model:
    return cls([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])


def _stateful() -> keras.Model:
    layers = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((4,)), *layers])


def _sparse() -> keras.Model:
    layers = [keras.layers.Embedding(9, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((4,)), *layers])


# Name: how to build, arguments of the optimizer and of `compile`, BatchNormalization.
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any], str]] = {
    "EMA": (_dense, {"use_ema": True, "ema_overwrite_frequency": 2}, {}, "synchronized"),
    "accumulation": (_dense, {"gradient_accumulation_steps": 2}, {}, "synchronized"),
    "steps per execution": (_dense, {}, {"steps_per_execution": 3}, "synchronized"),
    "XLA": (_dense, {}, {"jit_compile": True}, "synchronized"),
    "eager": (_dense, {}, {"run_eagerly": True}, "synchronized"),
    "own step": (lambda: _dense(OwnStep), {}, {}, "synchronized"),
    "sparse gradients": (_sparse, {}, {}, "synchronized"),
    "local statistics and dropout": (_stateful, {}, {}, "local"),
}


def run(name: str, num_replicas: int, corrupted: int, amount: float) -> tuple[str, str]:
    """Returns what `fit` said of a run with equal weights, and of one in which a replica's copy was changed."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    build, options, compiled, batch_norm = CASES[name]
    keras.backend.clear_session()
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1, batch_norm=batch_norm)
    with dp.scope():
        model = dp.prepare(build())
        model.compile(keras.optimizers.Adam(0.01, **options), "mse", **compiled)
    watch = tfscale.callbacks.DriftWatch(every_steps=2)
    return _fit(model, watch), _fit(model, watch, _Corrupt(dp, corrupted, amount))


def _fit(model: keras.Model, *callbacks: Any) -> str:
    try:
        model.fit(X, Y, epochs=1, shuffle=False, verbose=0, callbacks=list(callbacks))
    except tfscale.DriftError as error:
        return str(error)
    return ""


class _Corrupt(keras.callbacks.Callback):
    """Changes the copy of one replica, once, after some steps."""

    def __init__(self, dp: Any, replica: int, amount: float):
        super().__init__()
        self._dp, self._replica, self._amount = dp, replica, amount
        self._is_done = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        if batch < 5 or self._is_done:
            return
        self._is_done = True
        copies = self._dp.strategy.experimental_local_results(self.model.weights[0].value)
        mine = self._replica - self._dp.rank * len(copies)
        if 0 <= mine < len(copies):
            # One number of many.
            change = np.zeros(copies[mine].shape, "float32")
            change.flat[-1] = self._amount
            copies[mine].assign_add(change)


def checksums() -> list[list[float]]:
    """Checksums of pairs of weights that differ in bits, or in nothing."""
    from tfscale.training.step.checksums import checksum

    pairs = [
        ([1.0, 2.0], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, np.nextafter(np.float32(2), np.float32(3))]),
        ([0.0], [-0.0]),
        ([np.nan], [np.nan]),
        ([1.0], [np.nan]),
        ([], []),
        ([2.0], [8.0]),
    ]
    dtypes = ["float32"] * len(pairs) + ["float16", "bfloat16", "float64", "int64", "bool", "uint8"]
    pairs += [([1, 0], [1, 1])] * 6
    found = []
    for (left, right), dtype in zip(pairs, dtypes, strict=True):
        values = [
            tf.cast(tf.constant(side, tf.float64 if side == [1, 0] else tf.float32), dtype) for side in (left, right)
        ]
        found.append([float(checksum([_Held(value)])) for value in values])
    exchanged = [tf.constant([1.0]), tf.constant([2.0])]
    found.append([float(checksum(list(map(_Held, order)))) for order in (exchanged, exchanged[::-1])])
    return found


class _Held:
    def __init__(self, value: tf.Tensor):
        self.value = value


def not_prepared() -> str:
    """A model of TensorFlow's own strategy."""
    tfscale.simulate_replicas(2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = _dense()
        model.compile("sgd", "mse")
    try:
        model.fit(X[:BATCH], Y[:BATCH], batch_size=BATCH, verbose=0, callbacks=[tfscale.callbacks.DriftWatch()])
    except tfscale.ModelError as error:
        return str(error)
    return ""
