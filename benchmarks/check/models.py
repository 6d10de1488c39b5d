"""Whose first step is taken: what Keras users train, small, on one batch that is the same in every process."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks import models
from benchmarks.check.plan import BATCH

_NUM_TOKENS, _LENGTH, _WIDTH, _HEADS = 1000, 32, 64, 4


def build(name: str) -> keras.Model:
    """Builds one of `plan.MODELS`: logits of `models.NUM_CLASSES` classes."""
    return {"mlp": _mlp, "resnet": _resnet, "transformer": transformer, "own train_step": _own}[name]()


def batch(name: str) -> tuple[Any, np.ndarray]:
    """`BATCH` rows and their labels."""
    x, y = models.images()
    return tokens(BATCH) if name == "transformer" else x[:BATCH], y[:BATCH]


def tokens(rows: int) -> dict[str, np.ndarray]:
    """What `transformer` reads."""
    drawn = np.random.default_rng(0).integers(0, _NUM_TOKENS, (rows, _LENGTH))
    return {"tokens": drawn, "places": np.tile(np.arange(_LENGTH), (rows, 1))}


def _mlp() -> keras.Model:
    return models.build("mlp", keras)


def _resnet() -> keras.Model:
    layers = keras.layers
    image = keras.Input(models.IMAGE_SHAPE)
    x = layers.ReLU()(convolution(image, 16))
    y = layers.ReLU()(convolution(x, 32, strides=2))
    shortcut = layers.Conv2D(32, 1, strides=2, use_bias=False)(x)
    x = layers.ReLU()(layers.Add()([shortcut, convolution(y, 32)]))
    return keras.Model(image, layers.Dense(models.NUM_CLASSES)(layers.GlobalAveragePooling2D()(x)))


def convolution(x: Any, filters: int, strides: int = 1) -> Any:
    """3x3, and BatchNormalization."""
    x = keras.layers.Conv2D(filters, 3, strides, padding="same", use_bias=False)(x)
    return keras.layers.BatchNormalization()(x)


def transformer(num_layers: int = 2) -> keras.Model:
    """Pre-norm encoder over `_LENGTH` tokens, the mean of which is classified."""
    layers = keras.layers
    words = keras.Input((_LENGTH,), dtype="int32", name="tokens")
    places = keras.Input((_LENGTH,), dtype="int32", name="places")
    x = layers.Add()([layers.Embedding(_NUM_TOKENS, _WIDTH)(words), layers.Embedding(_LENGTH, _WIDTH)(places)])
    for _ in range(num_layers):
        y = layers.LayerNormalization()(x)
        y = layers.MultiHeadAttention(_HEADS, _WIDTH // _HEADS)(y, y)
        x = layers.Add()([x, y])
        y = layers.Dense(4 * _WIDTH, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(_WIDTH)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model({"tokens": words, "places": places}, layers.Dense(models.NUM_CLASSES)(x))


class OwnStep(keras.Model):
    """As Keras's guide "Customizing what happens in `fit()`" writes it."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


def _own() -> keras.Model:
    plain = _mlp()
    return OwnStep(plain.inputs, plain.outputs)
