"""Cases of the contract: batches that do not divide by the replicas, and BatchNormalization."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tests.training.contract import Case, fitting
from tests.training.models import (
    FEWER_THAN_REPLICAS,
    LABELS,
    WEIGHTS,
    X,
    classifying,
    labelled,
    mlp,
    normalised,
    sgd,
)


def batched(rows: int, batch: int) -> Any:
    return lambda: {"x": tf.data.Dataset.from_tensor_slices((X[:rows], LABELS[:rows])).batch(batch)}


def _normalised_sequence() -> keras.Model:
    """BatchNormalization over batch and time with a mask, and inside another model."""
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Reshape((4, 2)),
            keras.layers.Masking(),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(6, activation="tanh"),
            keras.layers.GlobalAveragePooling1D(),
            keras.Sequential([keras.layers.BatchNormalization(axis=1), keras.layers.Dense(2)]),
        ]
    )


def _frozen_batch_norm() -> keras.Model:
    model = normalised()
    model.layers[1].trainable = False
    return model


def _masked_rows() -> dict[str, Any]:
    x = X.copy()
    x[::3, 4:] = 0
    return {"x": x, "y": LABELS, "batch_size": 24}


# The deviation of two rows is half of their difference, which may be far smaller than they are:
# dividing by it makes roundings larger by as much, on one replica as well.
_TWO_ROWS = 1e-4

CASES: dict[str, Case] = {
    "even batches": fitting(mlp, classifying(), labelled(240)),
    "last batch uneven": fitting(mlp, classifying(), labelled()),
    "last batch uneven, weighted": fitting(
        mlp, classifying(weighted_metrics=lambda: ["accuracy"]), labelled(sample_weight=WEIGHTS)
    ),
    "last batch smaller than N": fitting(mlp, classifying(), labelled(FEWER_THAN_REPLICAS)),
    "last batch of one row": fitting(mlp, classifying(), labelled(241)),
    "last batch smaller than N, batch norm": fitting(
        normalised, classifying(), labelled(FEWER_THAN_REPLICAS), tolerance=_TWO_ROWS
    ),
    "data smaller than a batch": fitting(normalised, classifying(), labelled(7), epochs=6, evaluated=False),
    "data smaller than N": fitting(mlp, classifying(), labelled(2), epochs=6),
    "batch not divisible by N": fitting(
        normalised,
        classifying(),
        lambda: {"x": X, "y": LABELS, "batch_size": 23},
        global_batch=23,
    ),
    "first batch uneven": fitting(mlp, classifying(), batched(10, 24), epochs=6),
    "first batch uneven, more follow": fitting(mlp, classifying(), batched(250, 25), global_batch=25),
    "batch norm": fitting(normalised, classifying(), labelled()),
    "batch norm, masked and nested": fitting(_normalised_sequence, classifying(), _masked_rows),
    "batch norm, frozen": fitting(_frozen_batch_norm, classifying(), labelled()),
    "batch norm, far from zero": fitting(
        normalised,
        classifying(lambda: sgd(learning_rate=0.01)),
        lambda: {"x": X + 30, "y": LABELS, "batch_size": 24},
        # A mean far from zero costs the variance digits on one replica too: 30^2 roundings of it.
        tolerance=1e-3,
    ),
    "batch norm, synchronized=True": fitting(
        lambda: normalised(synchronized=True),
        classifying(),
        labelled(FEWER_THAN_REPLICAS),
        tolerance=_TWO_ROWS,
    ),
}
