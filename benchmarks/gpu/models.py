"""What is trained on GPUs: ResNet-50 and a GPT, on random images and tokens that lie in memory."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.gpu.plan import GPTS, IMAGE_SIDES, Gpt

_NUM_CLASSES = 1000


class Positions(keras.layers.Layer):
    """Adds to each place of `[batch, length, width]` what is learnt for it."""

    def build(self, input_shape: Any) -> None:
        """Makes the table."""
        self.table = self.add_weight(shape=input_shape[1:], name="table")

    def call(self, inputs: Any) -> Any:
        """Adds it."""
        return inputs + self.table


def build(name: str, size: str) -> keras.Model:
    """Builds a model; `size` is `"full"`, or `"tiny"` for a test of this benchmark."""
    if name == "gpt":
        return _gpt(GPTS[size])
    side = IMAGE_SIDES[size]
    if size == "full":
        return keras.applications.ResNet50(weights=None, classifier_activation=None, input_shape=(side, side, 3))
    image = keras.Input((side, side, 3))
    x = keras.layers.Conv2D(8, 3, strides=2, padding="same")(image)
    y = keras.layers.Conv2D(8, 3, padding="same")(keras.layers.ReLU()(keras.layers.BatchNormalization()(x)))
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.Add()([x, y]))
    return keras.Model(image, keras.layers.Dense(_NUM_CLASSES, dtype="float32")(x))


def _gpt(shape: Gpt) -> keras.Model:
    layers = keras.layers
    tokens = keras.Input((shape.length,), dtype="int32")
    x = Positions()(layers.Embedding(shape.vocabulary, shape.width)(tokens))
    for _ in range(shape.depth):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(shape.heads, shape.width // shape.heads)(y, y, use_causal_mask=True)
        y = layers.Dense(4 * shape.width, "gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dense(shape.width)(y)
    logits = layers.Dense(shape.vocabulary, use_bias=False, dtype="float32")(layers.LayerNormalization()(x))
    return keras.Model(tokens, logits)


def data(name: str, size: str, batch: int) -> tf.data.Dataset:
    """One batch, again and again: what is measured is the step, not the reading."""
    rng = np.random.default_rng(0)
    if name == "gpt":
        shape = GPTS[size]
        tokens = rng.integers(0, shape.vocabulary, (batch, shape.length + 1), dtype="int32")
        x, y = tokens[:, :-1], tokens[:, 1:]
    else:
        side = IMAGE_SIDES[size]
        x = rng.standard_normal((batch, side, side, 3), dtype="float32")
        y = rng.integers(0, _NUM_CLASSES, batch, dtype="int32")
    return tf.data.Dataset.from_tensors((x, y)).cache().repeat().prefetch(tf.data.AUTOTUNE)


def image_flops(model: keras.Model) -> float:
    """FLOPs of a step per image, forward and backward: 6 for each multiplication of convolutions and dense layers.

    Two for the multiplication and the addition of the forward pass, twice that for the backward pass.
    """
    multiplications = 0
    for layer in model.layers:
        if isinstance(layer, keras.layers.Conv2D):
            multiplications += math.prod(layer.output.shape[1:3]) * math.prod(layer.kernel.shape)
        elif isinstance(layer, keras.layers.Dense):
            multiplications += math.prod(layer.kernel.shape)
    return 6.0 * multiplications
