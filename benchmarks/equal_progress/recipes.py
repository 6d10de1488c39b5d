"""What is trained: handwritten digits, a small network, four recipes tuned for one replica.

The rates are half of the best of 0.0125, 0.025, 0.05, 0.1 (SGD) and a quarter of the best of 0.002, 0.004, 0.008, 0.016
(AdamW) on one replica, with seeds that no run here has: at the best rate the reference is at the edge of what it bears,
and cannot be raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from sklearn.datasets import load_digits

import tfscale
from benchmarks.equal_progress import EPOCHS

# So small that the noise of the gradients dominates up to 8 replicas, as the rules take for granted.
PER_REPLICA_BATCH = 8
# Nearly half of the 1797 digits are for testing: the fewer, the coarser the accuracy.
NUM_TRAIN = 1000
NUM_STEPS = EPOCHS * -(-NUM_TRAIN // PER_REPLICA_BATCH)


class Digits(NamedTuple):
    """Images `[examples, 64]` from 0 to 1, and their labels."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def load(seed: int) -> Digits:
    """Loads scikit-learn's digits, divided by the seed: what holds for one division alone is not what is asked."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    images, labels = (data.data / 16)[order].astype("float32"), data.target[order]
    return Digits((images[:NUM_TRAIN], labels[:NUM_TRAIN]), (images[NUM_TRAIN:], labels[NUM_TRAIN:]))


def build_model() -> keras.Model:
    """Two dense layers."""
    return keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)],
    )


def cosine(rate: float) -> keras.optimizers.schedules.LearningRateSchedule:
    """To zero over the run."""
    return keras.optimizers.schedules.CosineDecay(rate, NUM_STEPS)


def step_decay(rate: float) -> keras.optimizers.schedules.LearningRateSchedule:
    """A tenth of the rate after each two fifths of the run."""
    return tfscale.StepDecay(rate, multiplier=0.1, interval=2 * NUM_STEPS // 5)


def sgd(schedule: Any) -> keras.optimizers.Optimizer:
    """With momentum."""
    return keras.optimizers.SGD(schedule, momentum=0.9)


def adamw(schedule: Any) -> keras.optimizers.Optimizer:
    """With a weight decay that shows."""
    return keras.optimizers.AdamW(schedule, weight_decay=0.01)


RECIPES: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "SGD, cosine": lambda: sgd(cosine(0.025)),
    "SGD, step decay": lambda: sgd(step_decay(0.025)),
    "AdamW, cosine": lambda: adamw(cosine(0.004)),
    "AdamW, step decay": lambda: adamw(step_decay(0.004)),
}
