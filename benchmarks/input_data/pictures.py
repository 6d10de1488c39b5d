"""Real work for a pipeline: photographs as JPEG files, decoded, cropped and flipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_sample_images

BATCH, NUM_PICTURES, SIDE, CROP = 32, 1024, 128, 96


def encode(times: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """JPEG files, cut from the two photographs that come with scikit-learn, and labels: which of them.

    Args:
        times: How often each of 1024 files comes in an epoch.
    """
    photographs, random = load_sample_images().images, np.random.default_rng(0)
    files, labels = [], []
    for index in range(NUM_PICTURES):
        label = index % len(photographs)
        picture = photographs[label]
        top, left = (int(random.integers(0, size - SIDE)) for size in picture.shape[:2])
        files.append(tf.io.encode_jpeg(picture[top : top + SIDE, left : left + SIDE]).numpy())
        labels.append(label)
    return np.tile(np.array(files, dtype=object), times), np.tile(np.array(labels), times)


def decode(example: Any, seed: tf.Tensor) -> Any:
    """What a training script does to one picture."""
    file, label = example
    picture = tf.io.decode_jpeg(file, channels=3)
    picture = tf.image.stateless_random_crop(picture, (CROP, CROP, 3), seed)
    picture = tf.image.stateless_random_flip_left_right(picture, seed)
    return tf.cast(picture, tf.float32) / 255.0, label


def by_hand(files: np.ndarray, labels: np.ndarray) -> tf.data.Dataset:
    """The same in plain tf.data, as TensorFlow's guide to performance says: shuffle, parallel map, batch, prefetch."""
    examples = tf.data.Dataset.from_tensor_slices((files.astype("S"), labels)).shuffle(len(labels), seed=1)
    counter = tf.data.Dataset.random(seed=1).batch(2).map(lambda seed: tf.cast(seed % 2**31, tf.int32))
    pairs = tf.data.Dataset.zip((examples, counter))
    mapped = pairs.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    return mapped.batch(BATCH, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
