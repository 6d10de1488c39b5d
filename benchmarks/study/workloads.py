"""What the studies train: three models on three sets of examples that come with packages."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import tarfile
import textwrap
import typing
from typing import Any

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits, load_sample_images

NUM_DIGITS = 1297
_PATCH, _PATCHES, _VALIDATED = 12, 2048, 500
_LENGTH, _SEQUENCES, _WIDTH = 24, 4096, 32
# Printable ASCII and the line's end; whatever else there is counts as one more.
_CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
_SOURCES = (argparse, ast, inspect, json, tarfile, textwrap, typing)


def digits() -> dict[str, Any]:
    """Handwritten digits, `[examples, 64]` from 0 to 1."""
    return _digits(0)


def other_digits() -> dict[str, Any]:
    """The same digits, divided otherwise: other examples to train on, in another order."""
    return _digits(1)


def _digits(seed: int) -> dict[str, Any]:
    found = load_digits()
    images, labels = (found.data / 16).astype("float32"), found.target.astype("int32")
    order = np.random.default_rng(seed).permutation(len(images))
    train, rest = order[:NUM_DIGITS], order[NUM_DIGITS:]
    return {"x": images[train], "y": labels[train], "validation_data": (images[rest], labels[rest])}


def photographs() -> dict[str, Any]:
    """Patches `[examples, 12, 12, 3]` of scikit-learn's two photographs; to be told: of which one."""
    random = np.random.default_rng(0)
    patches, labels = [], []
    for label, picture in enumerate(load_sample_images().images):
        scaled = picture.astype("float32") / 255
        for _ in range((_PATCHES + _VALIDATED) // 2):
            top, left = (int(random.integers(0, size - _PATCH)) for size in scaled.shape[:2])
            patches.append(scaled[top : top + _PATCH, left : left + _PATCH])
            labels.append(label)
    order = random.permutation(len(labels))
    x, y = np.stack(patches)[order], np.asarray(labels, "int32")[order]
    return {"x": x[:_PATCHES], "y": y[:_PATCHES], "validation_data": (x[_PATCHES:], y[_PATCHES:])}


def sources() -> dict[str, Any]:
    """Characters of Python's own modules, `[examples, 24]`; to be told: the next one, at each place."""
    text = "".join(inspect.getsource(module) for module in _SOURCES)
    numbers = {character: number for number, character in enumerate(_CHARACTERS)}
    codes = np.array([numbers.get(character, len(numbers)) for character in text], "int32")
    random = np.random.default_rng(0)
    starts = random.integers(0, len(codes) - _LENGTH - 1, _SEQUENCES + _VALIDATED)
    rows = codes[starts[:, None] + np.arange(_LENGTH + 1)]
    x, y = rows[:, :-1], rows[:, 1:]
    validation = x[_SEQUENCES:], y[_SEQUENCES:]
    return {"x": x[:_SEQUENCES], "y": y[:_SEQUENCES], "validation_data": validation}


def _compiled(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> keras.Model:
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _perceptron() -> keras.Model:
    hidden = [layers.Dense(64, activation="relu") for _ in range(2)]
    return keras.Sequential([keras.Input((64,)), *hidden, layers.Dense(10)])


def _convolutions() -> keras.Model:
    image = keras.Input((_PATCH, _PATCH, 3))
    x = layers.Conv2D(8, 3, strides=2, activation="relu")(image)
    x = layers.Conv2D(16, 3, strides=2, activation="relu")(x)
    return keras.Model(image, layers.Dense(2)(layers.Flatten()(x)))


class _Places(layers.Layer):
    """Adds to each place of a text what is learnt for it."""

    def build(self, shape: Any) -> None:
        self.places = self.add_weight(shape=shape[1:], initializer="glorot_uniform", name="places")

    def call(self, x: Any) -> Any:
        return x + self.places


def _transformer() -> keras.Model:
    text = keras.Input((_LENGTH,), dtype="int32")
    x = _Places()(layers.Embedding(len(_CHARACTERS) + 1, _WIDTH)(text))
    own = layers.LayerNormalization()(x)
    x = x + layers.MultiHeadAttention(2, _WIDTH // 2)(own, own, use_causal_mask=True)
    own = layers.LayerNormalization()(x)
    x = x + layers.Dense(_WIDTH)(layers.Dense(2 * _WIDTH, activation="gelu")(own))
    return keras.Model(text, layers.Dense(len(_CHARACTERS) + 1)(layers.LayerNormalization()(x)))


def perceptron_sgd(rate: float = 0.3) -> keras.Model:
    """At a batch of 32, as the rates of all that follow."""
    return _compiled(_perceptron(), keras.optimizers.SGD(rate))


def perceptron_momentum(rate: float = 0.04) -> keras.Model:
    """With momentum 0.9."""
    return _compiled(_perceptron(), keras.optimizers.SGD(rate, momentum=0.9))


def perceptron_adamw(rate: float = 0.006) -> keras.Model:
    """With Keras's own betas and decay."""
    return _compiled(_perceptron(), keras.optimizers.AdamW(rate))


def convolutions_sgd(rate: float = 0.3) -> keras.Model:
    """As `perceptron_sgd`."""
    return _compiled(_convolutions(), keras.optimizers.SGD(rate))


def convolutions_momentum(rate: float = 0.04) -> keras.Model:
    """As `perceptron_momentum`."""
    return _compiled(_convolutions(), keras.optimizers.SGD(rate, momentum=0.9))


def convolutions_adamw(rate: float = 0.006) -> keras.Model:
    """As `perceptron_adamw`."""
    return _compiled(_convolutions(), keras.optimizers.AdamW(rate))


def transformer_sgd(rate: float = 1.0) -> keras.Model:
    """As `perceptron_sgd`."""
    return _compiled(_transformer(), keras.optimizers.SGD(rate))


def transformer_momentum(rate: float = 0.1) -> keras.Model:
    """As `perceptron_momentum`."""
    return _compiled(_transformer(), keras.optimizers.SGD(rate, momentum=0.9))


def transformer_adamw(rate: float = 0.006) -> keras.Model:
    """As `perceptron_adamw`."""
    return _compiled(_transformer(), keras.optimizers.AdamW(rate))
