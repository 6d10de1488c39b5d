"""Small models and data that the cases share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tests.training.contract import GLOBAL_BATCH

# 250 = 10 batches of 24 and one of 10; 242 leaves 2, fewer than 3 or 4 replicas.
UNEVEN = 250
FEWER_THAN_REPLICAS = 242

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(UNEVEN, 8)).astype("float32")
LABELS = (X @ _RNG.normal(size=8) > 0).astype("int32")
TARGETS = np.tanh(X @ _RNG.normal(size=(8, 2))).astype("float32")
WEIGHTS = np.linspace(0, 3, UNEVEN).astype("float32")
TOKENS = _RNG.integers(0, 12, size=(UNEVEN, 6)).astype("int32")


def labelled(rows: int = UNEVEN, **more: Any) -> Callable[[], dict[str, Any]]:
    """Arguments of `fit` for a classifier."""
    return lambda: {"x": X[:rows], "y": LABELS[:rows], "batch_size": GLOBAL_BATCH, **more}


def targeted(rows: int = UNEVEN, **more: Any) -> Callable[[], dict[str, Any]]:
    """Arguments of `fit` for a regression of two numbers."""
    return lambda: {"x": X[:rows], "y": TARGETS[:rows], "batch_size": GLOBAL_BATCH, **more}


def mlp(*between: Callable[[], keras.layers.Layer], outputs: int = 2, **dense: Any) -> keras.Model:
    """Dense 16, then layers made by `between`, then Dense `outputs`."""
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="tanh", **dense),
            *(make() for make in between),
            keras.layers.Dense(outputs),
        ]
    )


def normalised(**options: Any) -> keras.Model:
    """Without a bias before the normalisation: its gradient would be zero but for rounding."""
    return mlp(lambda: keras.layers.BatchNormalization(**options), use_bias=False)


def classifying(
    optimizer: Callable[[], keras.optimizers.Optimizer] | None = None, **more: Any
) -> Callable[[], dict[str, Any]]:
    """Arguments of `compile` for a classifier; callables for what must be made under the scope."""

    def arguments() -> dict[str, Any]:
        made = {
            "optimizer": (optimizer or sgd)(),
            "loss": cross_entropy(),
            "metrics": ["accuracy"],
        }
        return made | {name: make() if callable(make) else make for name, make in more.items()}

    return arguments


def regressing(
    optimizer: Callable[[], keras.optimizers.Optimizer] | None = None, **more: Any
) -> Callable[[], dict[str, Any]]:
    """As `classifying`, with the mean squared error."""

    def arguments() -> dict[str, Any]:
        made = {"optimizer": (optimizer or sgd)(), "loss": "mse", "metrics": ["mae"]}
        return made | {name: make() if callable(make) else make for name, make in more.items()}

    return arguments


def cross_entropy(**options: Any) -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def sgd(**options: Any) -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(**{"learning_rate": 0.1, "momentum": 0.9, **options})


def adam(**options: Any) -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(**{"learning_rate": 0.01, **options})


class ScheduleWithoutConfig(keras.optimizers.schedules.LearningRateSchedule):
    """As people write them in a script, without `get_config`: Keras cannot serialize what has it."""

    def __call__(self, step: Any) -> Any:
        return 0.01 / keras.ops.sqrt(keras.ops.cast(step, "float32") + 1.0)


class PenaltyWithoutConfig(keras.regularizers.Regularizer):
    """The same for a penalty of weights."""

    def __call__(self, weights: Any) -> Any:
        return 0.01 * keras.ops.sum(keras.ops.square(weights))
