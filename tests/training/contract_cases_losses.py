"""Cases of the contract: denominators other than the number of examples."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np

from tests.training.contract import Case, fitting
from tests.training.models import (
    FEWER_THAN_REPLICAS,
    LABELS,
    TARGETS,
    TOKENS,
    WEIGHTS,
    PenaltyWithoutConfig,
    X,
    classifying,
    cross_entropy,
    labelled,
    mlp,
    regressing,
    sgd,
    targeted,
)

_SUM_RATE = 0.002  # A sum over 24 rows, so a 24th of the rate.


def losing(loss: Any, rate: float = 0.1, build: Any = mlp, data: Any = None, **case: Any) -> Case:
    """A classifier with a loss of its own, and clipping so that every gradient counts as a whole."""
    return fitting(
        build,
        lambda: {
            "optimizer": sgd(learning_rate=rate, clipnorm=0.5),
            "loss": loss(),
            "metrics": ["accuracy"],
        },
        data or labelled(),
        **case,
    )


def _sequence_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(12, 6, mask_zero=True),
            keras.layers.SimpleRNN(5, return_sequences=True),
            keras.layers.TimeDistributed(keras.layers.Dense(3)),
        ]
    )


def _sequences(**more: Any) -> Any:
    # Every row has other numbers of unmasked entries; the first rows have the fewest.
    tokens = np.where(np.arange(6) < 1 + np.arange(250)[:, None] % 6, TOKENS, 0).astype("int32")
    tokens[:40, 2:] = 0
    return lambda: {"x": tokens, "y": TOKENS % 3, "batch_size": 24, **more}


def _fully_masked_share(rows: int = 250) -> Any:
    # The first eight rows of each batch, all that one of three replicas sees, have no entry at all.
    data = _sequences()()
    x = data["x"].copy()
    x[np.arange(250) % 24 < 8] = 0
    return lambda: {"x": x[:rows], "y": data["y"][:rows], "batch_size": 24}


def _mean_square(y: Any, y_pred: Any) -> Any:
    error = keras.ops.cast(y, "float32") - y_pred[:, 0]
    return keras.ops.mean(keras.ops.square(error)) + 0.01 * keras.ops.max(y_pred)


def _summed_square(y: Any, y_pred: Any) -> Any:
    return keras.ops.sum(keras.ops.square(keras.ops.cast(y, "float32") - y_pred[:, 0]))


def _dice(y: Any, y_pred: Any) -> Any:
    y, p = keras.ops.cast(y, "float32"), keras.ops.sigmoid(y_pred[:, 0])
    return 1 - (2 * keras.ops.sum(y * p) + 1) / (keras.ops.sum(y) + keras.ops.sum(p) + 1)


def _per_row(y: Any, y_pred: Any) -> Any:
    return keras.ops.abs(keras.ops.cast(y, "float32") - y_pred[:, 0])


def _weighted_row(y: Any, y_pred: Any, weight: float) -> Any:
    return weight * _per_row(y, y_pred)


class _CallableObject:
    """A loss that is neither a function nor a class of Keras's."""

    def __call__(self, y: Any, y_pred: Any) -> Any:
        return _per_row(y, y_pred)


class _OwnReduction(keras.losses.Loss):
    """A user's class that reduces by itself."""

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return keras.ops.sqrt(_mean_square(y_true, y_pred))


@keras.saving.register_keras_serializable("tests")
class AddsLoss(keras.layers.Layer):
    """Adds a mean, a sum, or both, over its inputs."""

    def __init__(self, kinds: str) -> None:
        super().__init__()
        self.kinds = kinds

    def call(self, inputs: Any) -> Any:
        if "mean" in self.kinds:
            self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
        if "sum" in self.kinds:
            self.add_loss(0.01 * keras.ops.sum(keras.ops.square(inputs)))
        return inputs


def _adding(kinds: str) -> Any:
    return lambda: mlp(lambda: AddsLoss(kinds), kernel_regularizer="l2")


def _several_outputs() -> keras.Model:
    left, right = keras.Input((8,), name="left"), keras.Input((6,), name="right", dtype="int32")
    embedded = keras.layers.Flatten()(keras.layers.Embedding(12, 3)(right))
    joined = keras.layers.Concatenate()([keras.layers.Dense(6, activation="tanh")(left), embedded])
    hidden = keras.layers.Dense(8, activation="tanh")(joined)
    outputs = {
        "kind": keras.layers.Dense(2, name="kind")(hidden),
        "size": keras.layers.Dense(2, name="size")(hidden),
    }
    return keras.Model({"left": left, "right": right}, outputs)


def _several_data(rows: int = 250) -> Any:
    return lambda: {
        "x": {"left": X[:rows], "right": TOKENS[:rows]},
        "y": {"kind": LABELS[:rows], "size": TARGETS[:rows]},
        "batch_size": 24,
    }


def _several_compiled() -> dict[str, Any]:
    return {
        "optimizer": sgd(clipnorm=0.5),
        "loss": {"kind": cross_entropy(), "size": keras.losses.MeanSquaredError("sum")},
        "loss_weights": {"kind": 1.0, "size": 0.02},
        "metrics": {"kind": ["accuracy"], "size": ["mse"]},
    }


def _with_ignored() -> dict[str, Any]:
    labels = LABELS.copy()
    labels[np.arange(250) % 24 < 8] = -1
    labels[100::7] = -1
    return {"x": X, "y": labels, "batch_size": 24}


CASES: dict[str, Case] = {
    "masked sequence loss": losing(cross_entropy, build=_sequence_model, data=_sequences(), evaluated=True),
    "masked sequence loss, a replica without entries": losing(
        cross_entropy, build=_sequence_model, data=_fully_masked_share()
    ),
    "masked sequence loss, last batch smaller than N": losing(
        cross_entropy, build=_sequence_model, data=_fully_masked_share(FEWER_THAN_REPLICAS)
    ),
    "masked sequence loss, jit_compile": fitting(
        _sequence_model, classifying(lambda: sgd(clipnorm=0.05), jit_compile=True), _sequences()
    ),
    "masked sequence loss, weighted": losing(
        lambda: cross_entropy(reduction="mean_with_sample_weight"),
        build=_sequence_model,
        data=_sequences(sample_weight=np.repeat(WEIGHTS[:, None], 6, axis=1)),
    ),
    "masked, reduction sum": losing(lambda: cross_entropy(reduction="sum"), _SUM_RATE, _sequence_model, _sequences()),
    "mean_with_sample_weight": losing(
        lambda: cross_entropy(reduction="mean_with_sample_weight"),
        data=labelled(sample_weight=WEIGHTS),
        evaluated=True,
    ),
    "mean_with_sample_weight without weights": losing(lambda: cross_entropy(reduction="mean_with_sample_weight")),
    "mean_with_sample_weight, a replica without weight": losing(
        lambda: cross_entropy(reduction="mean_with_sample_weight"),
        data=labelled(sample_weight=np.where(np.arange(250) % 24 < 8, 0, WEIGHTS)),
    ),
    "mean_with_sample_weight, accumulation": fitting(
        mlp,
        lambda: {
            "optimizer": sgd(gradient_accumulation_steps=2),
            "loss": cross_entropy(reduction="mean_with_sample_weight"),
        },
        labelled(sample_weight=WEIGHTS),
    ),
    "reduction sum": losing(lambda: cross_entropy(reduction="sum"), _SUM_RATE, evaluated=True),
    "reduction sum, last batch smaller than N": losing(
        lambda: cross_entropy(reduction="sum"), _SUM_RATE, data=labelled(FEWER_THAN_REPLICAS)
    ),
    "reduction None": losing(lambda: cross_entropy(reduction=None), _SUM_RATE, evaluated=True),
    "reduction mean": losing(lambda: cross_entropy(reduction="mean")),
    "scalar loss function, mean": losing(lambda: _mean_square, evaluated=True),
    "scalar loss function, sum": losing(lambda: _summed_square, _SUM_RATE),
    "scalar loss function, ratio": losing(lambda: _dice, data=labelled(FEWER_THAN_REPLICAS), evaluated=True),
    "loss function per row": losing(lambda: _per_row),
    "loss that is a functools.partial": losing(lambda: functools.partial(_weighted_row, weight=0.5)),
    "loss that is an object": losing(_CallableObject),
    "loss that is a lambda": losing(lambda: lambda y, y_pred: _per_row(y, y_pred)),
    "loss class that reduces by itself": losing(lambda: _OwnReduction()),
    "add_loss, mean": losing(cross_entropy, build=_adding("mean"), evaluated=True),
    "add_loss, sum": losing(
        cross_entropy,
        build=_adding("sum"),
        evaluated=True,
    ),
    "add_loss, mean and sum": losing(
        cross_entropy,
        build=_adding("mean sum"),
        data=labelled(FEWER_THAN_REPLICAS),
    ),
    "add_loss alone": fitting(
        lambda: keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), AddsLoss("mean")]),
        lambda: {"optimizer": sgd()},
        lambda: {"x": X, "batch_size": 24},
    ),
    "activity_regularizer": losing(
        cross_entropy, build=lambda: mlp(activity_regularizer="l2", kernel_regularizer="l2")
    ),
    "kernel_regularizer": losing(cross_entropy, build=lambda: mlp(kernel_regularizer="l2")),
    "a regularizer of one's own": losing(cross_entropy, build=lambda: mlp(kernel_regularizer=PenaltyWithoutConfig())),
    "several inputs and outputs": fitting(
        _several_outputs,
        _several_compiled,
        _several_data(),
        evaluated=True,
    ),
    "several inputs and outputs, last batch smaller than N": fitting(
        _several_outputs,
        _several_compiled,
        _several_data(FEWER_THAN_REPLICAS),
    ),
    "sample_weight": losing(cross_entropy, data=labelled(sample_weight=WEIGHTS), evaluated=True),
    "class_weight": losing(cross_entropy, data=labelled(class_weight={0: 0.2, 1: 3.0})),
    "ignore_class": losing(lambda: cross_entropy(ignore_class=-1), data=_with_ignored),
    "Circle loss, of pairs": fitting(
        lambda: keras.Sequential([mlp(outputs=4), keras.layers.UnitNormalization()]),
        lambda: {"optimizer": sgd(), "loss": keras.losses.Circle(gamma=2.0)},
        labelled(),
        evaluated=True,
    ),
    "Dice loss per column, over the rows": fitting(
        lambda: mlp(outputs=2),
        lambda: {"optimizer": sgd(), "loss": keras.losses.Dice(axis=0)},
        targeted(),
        evaluated=True,
    ),
    "Dice loss": fitting(
        lambda: mlp(outputs=1),
        lambda: {"optimizer": sgd(), "loss": keras.losses.Dice()},
        lambda: {"x": X, "y": LABELS[:, None].astype("float32"), "batch_size": 24},
        # A quotient of two sums, each rounded: 1.8e-5 on some processors, and 4e-6 on others.
        tolerance=3e-5,
    ),
    "mean absolute error by name": fitting(mlp, regressing(loss="mae"), targeted()),
    "embedding, sparse gradients and clipnorm": fitting(
        lambda: keras.Sequential(
            [
                keras.Input((6,), dtype="int32"),
                keras.layers.Embedding(12, 4),
                keras.layers.Flatten(),
                keras.layers.Dense(2),
            ]
        ),
        classifying(lambda: sgd(clipnorm=0.05)),
        lambda: {"x": TOKENS, "y": LABELS, "batch_size": 24},
    ),
    "embedding, sparse gradients and Adam": fitting(
        lambda: keras.Sequential(
            [
                keras.Input((6,), dtype="int32"),
                keras.layers.Embedding(12, 4),
                keras.layers.Flatten(),
                keras.layers.Dense(2),
            ]
        ),
        classifying(lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)),
        lambda: {"x": TOKENS, "y": LABELS, "batch_size": 24},
    ),
}
