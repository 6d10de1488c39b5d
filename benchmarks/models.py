"""What is trained: two small models on fixed random images.

Small on purpose: the less a step computes, the more of it is the library's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.contenders import LEARNING_RATE, MOMENTUM, SMALL_MODEL

if TYPE_CHECKING:
    # Where Keras runs on JAX there is no TensorFlow.
    import tensorflow as tf

NUM_EXAMPLES = 2048
NUM_CLASSES = 10
IMAGE_SHAPE = (28, 28, 1)


def build(name: str, keras: Any) -> Any:
    """Builds `"mlp"` (784-512-512-10), `"convnet"` (3x3, 32 and 64 filters, pool, dense 128) or `"small"` (20-32-1).

    Args:
        name: Which model.
        keras: The module to build it with: Keras 3 or tf_keras.
    """
    layers = keras.layers
    if name == SMALL_MODEL:
        return keras.Sequential([keras.Input((20,)), layers.Dense(32, activation="relu"), layers.Dense(1)])
    image = keras.Input(IMAGE_SHAPE)
    if name == "mlp":
        x = layers.Flatten()(image)
        x = layers.Dense(512, activation="relu")(x)
        x = layers.Dense(512, activation="relu")(x)
    else:
        x = layers.Conv2D(32, 3, activation="relu")(image)
        x = layers.Conv2D(64, 3, activation="relu")(x)
        x = layers.MaxPooling2D()(x)
        x = layers.Flatten()(x)
        x = layers.Dense(128, activation="relu")(x)
    return keras.Model(image, layers.Dense(NUM_CLASSES)(x))


def make_optimizer(keras: Any) -> Any:
    """The same for every contender."""
    return keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)


def make_loss(keras: Any, **arguments: Any) -> Any:
    """Cross-entropy from logits."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **arguments)


def images() -> tuple[np.ndarray, np.ndarray]:
    """`NUM_EXAMPLES` images and labels, the same in every process and on every day."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((NUM_EXAMPLES, *IMAGE_SHAPE), dtype=np.float32)
    return x, generator.integers(0, NUM_CLASSES, NUM_EXAMPLES)


def dataset(batch: int, *, rank: int = 0, num_workers: int = 1) -> tf.data.Dataset:
    """The images in batches kept in memory, without end.

    Args:
        batch: Rows of a batch.
        rank: Which worker reads; it sees every `num_workers`-th example.
        num_workers: Among how many workers the examples are divided.
    """
    import tensorflow as tf

    x, y = images()
    examples = tf.data.Dataset.from_tensor_slices((x[rank::num_workers], y[rank::num_workers]))
    batches = examples.batch(batch, drop_remainder=True).cache()
    return batches.repeat().prefetch(tf.data.AUTOTUNE)


def arrays(batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The batches of `dataset` as arrays, without end: of what Keras on JAX takes, the least work."""
    x, y = images()
    batches = [(x[first : first + batch], y[first : first + batch]) for first in range(0, len(x) - batch + 1, batch)]
    yield from itertools.cycle(batches)


def small_dataset(batch: int) -> tf.data.Dataset:
    """What the small model reads: numbers in batches kept in memory, without end."""
    import tensorflow as tf

    generator = np.random.default_rng(0)
    x = generator.standard_normal((NUM_EXAMPLES, 20), dtype=np.float32)
    y = np.tanh(x.sum(axis=1, keepdims=True))
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True).cache()
    return batches.repeat().prefetch(tf.data.AUTOTUNE)
