"""Models whose losses get all rows, of predictions that are sure of themselves in the third batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

import tfscale

BATCH = 8
# Three batches, of which the last one is smaller.
ROWS = 22
X = np.random.default_rng(3).normal(size=(35, 6)).astype("float32")
X[18:21] *= 60
CLASSES = np.random.default_rng(4).integers(0, 3, 35)
SHARES = keras.utils.to_categorical(CLASSES, 3)
BINARY = (CLASSES > 0).astype("float32")[:, None]


def _mean_of(loss: Callable[..., Any]) -> Any:
    """A loss that is one number, so that every replica computes it of all rows."""
    return lambda y, predicted: ops.mean(loss(y, predicted))


class _Mixing(layers.Layer):
    """In which the rows meet, so that every replica gets all of them."""

    def call(self, inputs: Any) -> Any:
        return inputs - 0.1 * ops.mean(inputs, axis=0)


class OwnStep(keras.Model):
    """Which gathers what it predicts."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = tfscale.gather_rows(self(x, training=True))
            loss = ops.mean(keras.losses.categorical_crossentropy(tfscale.gather_rows(y), predicted))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def _net(*hidden: layers.Layer, kind: type[keras.Model] = keras.Model) -> keras.Model:
    inputs = keras.Input((6,))
    outputs: Any = inputs
    for layer in hidden:
        outputs = layer(outputs)
    return kind(inputs, outputs)


def _masked() -> keras.Model:
    inputs = keras.Input((6,))
    rows = layers.Masking()(layers.Reshape((3, 2))(inputs))
    return keras.Model(inputs, layers.Dense(2, "softmax")(rows))


def _masked_loss(y: Any, predicted: Any) -> Any:
    # It gets the mask of what was predicted on one device.
    mask = getattr(predicted, "_keras_mask", None)
    lengths = 3.0 if mask is None else ops.sum(ops.cast(mask, "float32"), axis=1)
    return ops.mean(keras.losses.sparse_categorical_crossentropy(y, predicted)) + ops.mean(lengths * predicted[:, 0, 0])


PROGRAMS: dict[str, tuple[Callable[[], keras.Model], Any, np.ndarray]] = {
    "shares": (lambda: _net(layers.Dense(3, "softmax")), _mean_of(keras.losses.categorical_crossentropy), SHARES),
    "classes": (
        lambda: _net(layers.Dense(3), layers.Softmax()),
        _mean_of(keras.losses.sparse_categorical_crossentropy),
        CLASSES,
    ),
    "by TensorFlow": (
        lambda: _net(layers.Dense(3), layers.Lambda(tf.nn.softmax)),
        _mean_of(keras.losses.categorical_crossentropy),
        SHARES,
    ),
    "another activation": (
        lambda: _net(layers.Dense(3, "softplus")),
        _mean_of(keras.losses.categorical_crossentropy),
        SHARES,
    ),
    "a layer in which rows meet": (lambda: _net(_Mixing(), layers.Dense(1, "sigmoid")), "binary_crossentropy", BINARY),
    "a step that gathers": (lambda: _net(layers.Dense(3, "softmax"), kind=OwnStep), None, SHARES),
    "a mask": (_masked, _masked_loss, np.stack([CLASSES > 1, CLASSES > 0, CLASSES > 1], axis=1)),
}


def trained(names: list[str], options: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """By program: the weights that three replicas train, and one device.

    Args:
        names: Of `PROGRAMS`.
        options: Of `compile`.
    """
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    x = X.copy()
    x[::3, 4:] = 0.0
    return {name: (_trained(name, x, options, dp), _trained(name, x, options, None)) for name in names}


def _trained(name: str, x: np.ndarray, options: dict[str, Any], dp: Any) -> list[np.ndarray]:
    build, loss, y = PROGRAMS[name]
    keras.utils.set_random_seed(4)
    with contextlib.nullcontext() if dp is None else dp.scope():
        model = build()
        model.compile(keras.optimizers.SGD(0.1), loss, **options)
        if dp is not None:
            dp.prepare(model)
    model.fit(x[:ROWS], y[:ROWS], batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    weights: list[np.ndarray] = model.get_weights()
    return weights
