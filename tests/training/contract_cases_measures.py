"""Cases of the contract: every loss of Keras, an output for each, and every metric, those of one target together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from tests.training.contract import Case, fitting

# Two batches of eight, and one row: two of three replicas have none.
_BATCH, _ROWS = 8, 17
_RNG = np.random.default_rng(11)
_X = _RNG.normal(size=(_ROWS, 6)).astype("float32")
_SOUNDS = _RNG.normal(size=(_ROWS, 5, 4)).astype("float32")
_WEIGHTS = _RNG.uniform(0, 2, size=_ROWS).astype("float32")
_CLASSES = _RNG.integers(0, 3, _ROWS).astype("int32")
_TARGETS: dict[str, np.ndarray] = {
    "numbers": _RNG.uniform(0.1, 1, size=(_ROWS, 3)).astype("float32"),
    "yes or no": _RNG.integers(0, 2, size=(_ROWS, 3)).astype("float32"),
    "one of three": np.eye(3, dtype="float32")[_CLASSES],
    "class": _CLASSES,
    "letters": _RNG.integers(1, 3, size=(_ROWS, 2)).astype("int32"),
}
_ACTIVATIONS = {"numbers": "sigmoid", "yes or no": "sigmoid", "one of three": "softmax", "class": "softmax"}

_S = keras.losses
LOSSES: dict[str, Mapping[str, Callable[[], Any]]] = {
    "numbers": {
        "CosineSimilarity": _S.CosineSimilarity,
        "Huber": lambda: _S.Huber(0.2),
        "KLDivergence": _S.KLDivergence,
        "LogCosh": _S.LogCosh,
        "MeanAbsoluteError": lambda: _S.MeanAbsoluteError("mean_with_sample_weight"),
        "MeanAbsolutePercentageError": _S.MeanAbsolutePercentageError,
        "MeanSquaredError": lambda: _S.MeanSquaredError("sum"),
        "MeanSquaredLogarithmicError": _S.MeanSquaredLogarithmicError,
        "Poisson": _S.Poisson,
    },
    "yes or no": {
        "BinaryCrossentropy": lambda: _S.BinaryCrossentropy(label_smoothing=0.1),
        "BinaryFocalCrossentropy": lambda: _S.BinaryFocalCrossentropy(apply_class_balancing=True, gamma=1.5),
        "Dice": _S.Dice,
        "Hinge": _S.Hinge,
        "SquaredHinge": _S.SquaredHinge,
        "Tversky": lambda: _S.Tversky(0.3, 0.7),
    },
    "one of three": {
        "CategoricalCrossentropy": lambda: _S.CategoricalCrossentropy(label_smoothing=0.1),
        "CategoricalFocalCrossentropy": _S.CategoricalFocalCrossentropy,
        "CategoricalHinge": _S.CategoricalHinge,
        "Dice, by row": lambda: _S.Dice(axis=-1),
        "Tversky, by row": lambda: _S.Tversky(axis=-1),
    },
    "class": {
        "CategoricalGeneralizedCrossEntropy": _S.CategoricalGeneralizedCrossEntropy,
        "SparseCategoricalCrossentropy": _S.SparseCategoricalCrossentropy,
        "SparseCategoricalCrossentropy, ignoring": lambda: _S.SparseCategoricalCrossentropy(ignore_class=1),
    },
}
# Beside each other only with others of their kind of data.
ALONE: dict[str, Callable[[], Any]] = {"CTC": _S.CTC, "Circle": lambda: _S.Circle(gamma=2.0)}

_M = keras.metrics
METRICS: dict[str, Mapping[str, Callable[..., Any]]] = {
    "numbers": {
        name: getattr(_M, name)
        for name in (
            "ConcordanceCorrelation",
            "CosineSimilarity",
            "KLDivergence",
            "LogCoshError",
            "MeanAbsoluteError",
            "MeanAbsolutePercentageError",
            "MeanSquaredError",
            "MeanSquaredLogarithmicError",
            "PearsonCorrelation",
            "Poisson",
            "R2Score",
            "RootMeanSquaredError",
        )
        if hasattr(_M, name)
    },
    "yes or no": {
        **{
            name: getattr(_M, name)
            for name in (
                "AUC",
                "Accuracy",
                "BinaryAccuracy",
                "BinaryCrossentropy",
                "FalseNegatives",
                "FalsePositives",
                "Hinge",
                "Precision",
                "Recall",
                "SquaredHinge",
                "TrueNegatives",
                "TruePositives",
            )
        },
        "BinaryIoU": lambda name: _M.BinaryIoU([0, 1], name=name),
        "F1Score": lambda name: _M.F1Score(threshold=0.5, name=name),
        "FBetaScore": lambda name: _M.FBetaScore(beta=2.0, threshold=0.4, name=name),
        **{
            each: lambda name, each=each: getattr(_M, each)(0.5, name=name)
            for each in (
                "PrecisionAtRecall",
                "RecallAtPrecision",
                "SensitivityAtSpecificity",
                "SpecificityAtSensitivity",
            )
        },
    },
    "one of three": {
        "AUC, labels": lambda name: _M.AUC(multi_label=True, num_labels=3, name=name),
        "AUC, recall": lambda name: _M.AUC(curve="PR", num_thresholds=20, name=name),
        "CategoricalAccuracy": _M.CategoricalAccuracy,
        "CategoricalCrossentropy": _M.CategoricalCrossentropy,
        "CategoricalHinge": _M.CategoricalHinge,
        "F1Score, classes": lambda name: _M.F1Score(average="macro", name=name),
        "FBetaScore, classes": lambda name: _M.FBetaScore(average="weighted", beta=0.5, name=name),
        "OneHotIoU": lambda name: _M.OneHotIoU(3, [0, 2], name=name),
        "OneHotMeanIoU": lambda name: _M.OneHotMeanIoU(3, name=name),
        "Precision, class": lambda name: _M.Precision(class_id=1, name=name),
        "Recall, best": lambda name: _M.Recall(top_k=1, name=name),
        "TopKCategoricalAccuracy": lambda name: _M.TopKCategoricalAccuracy(2, name=name),
    },
    "class": {
        "IoU": lambda name: _M.IoU(3, [0], sparse_y_pred=False, name=name),
        "MeanIoU": lambda name: _M.MeanIoU(3, sparse_y_pred=False, name=name),
        "SparseCategoricalAccuracy": _M.SparseCategoricalAccuracy,
        "SparseCategoricalCrossentropy": _M.SparseCategoricalCrossentropy,
        "SparseTopKCategoricalAccuracy": lambda name: _M.SparseTopKCategoricalAccuracy(2, name=name),
    },
}
# Of a number, not of targets and predictions; and bases of others.
OTHERS = {"Loss", "Mean", "MeanMetricWrapper", "Metric", "Sum"}


def offered(module: Any, base: type) -> set[str]:
    """Names of the classes of one kind in a public namespace of the installed Keras."""
    return {name for name, found in vars(module).items() if inspect.isclass(found) and issubclass(found, base)}


def covered(tables: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Names of the classes that a case makes."""
    return {name.split(",")[0] for table in tables.values() for name in table}


def _keys(table: Mapping[str, Any]) -> list[str]:
    return [name.replace(", ", "_").replace(" ", "_") for name in table]


def _losing(target: str) -> Case:
    """A model with an output for each loss, weights for each row, and a weight for each loss."""
    names = _keys(LOSSES[target])

    def build() -> keras.Model:
        inputs = keras.Input((6,))
        hidden = keras.layers.Dense(5, activation="tanh")(inputs)
        heads = {name: keras.layers.Dense(3, activation=_ACTIVATIONS[target], name=name)(hidden) for name in names}
        return keras.Model(inputs, heads)

    def compiled() -> dict[str, Any]:
        return {
            "optimizer": keras.optimizers.SGD(0.05, momentum=0.9),
            "loss": {name: make() for name, make in zip(names, LOSSES[target].values(), strict=True)},
            # A percentage is a hundred times the others.
            "loss_weights": {name: 0.01 if "Percentage" in name else 0.3 for name in names},
        }

    def data() -> dict[str, Any]:
        return {
            "x": _X,
            "y": dict.fromkeys(names, _TARGETS[target]),
            "sample_weight": dict.fromkeys(names, _WEIGHTS),
            "batch_size": _BATCH,
        }

    return fitting(build, compiled, data, evaluated=True, global_batch=_BATCH)


def _dense(shape: tuple[int, ...], activation: str | None) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input(shape),
            keras.layers.Dense(5, activation="tanh"),
            keras.layers.Dense(3, activation=activation),
        ]
    )


def _losing_alone(name: str) -> Case:
    x, target = (_SOUNDS, "letters") if name == "CTC" else (_X, "class")
    return fitting(
        lambda: _dense(x.shape[1:], None),
        lambda: {"optimizer": keras.optimizers.SGD(0.01, momentum=0.9), "loss": ALONE[name]()},
        lambda: {"x": x, "y": _TARGETS[target], "batch_size": _BATCH},
        evaluated=True,
        global_batch=_BATCH,
    )


def _measuring(target: str) -> Case:
    """Each metric twice: of rows as they are, and of rows that have weights."""

    def made(suffix: str = "") -> list[keras.metrics.Metric]:
        makers = dict(zip(_keys(METRICS[target]), METRICS[target].values(), strict=True))
        # Keras's own takes no weight for each row of several columns.
        return [make(name=name + suffix) for name, make in makers.items() if not suffix or name != "BinaryIoU"]

    return fitting(
        lambda: _dense((6,), _ACTIVATIONS[target]),
        lambda: {
            "optimizer": keras.optimizers.SGD(0.1),
            "loss": "sparse_categorical_crossentropy" if target == "class" else "mse",
            "metrics": made(),
            "weighted_metrics": made("_of_weighted"),
        },
        lambda: {"x": _X, "y": _TARGETS[target], "sample_weight": _WEIGHTS, "batch_size": _BATCH},
        evaluated=True,
        global_batch=_BATCH,
        # A correlation of few numbers is a small difference of large ones.
        tolerances={quantity: 1e-4 for quantity in ("history", "batch logs", "evaluate") if target == "numbers"},
        # `MeanIoU` of rows that have weights.
        warns="You are passing weight as `float`, but dtype is `int`",
    )


def _without_a_column() -> Case:
    """One number for each row: the last axis of what metrics get is that of the rows."""

    def build() -> keras.Model:
        return keras.Sequential([_dense((6,), "sigmoid"), keras.layers.Dense(1), keras.layers.Reshape(())])

    return fitting(
        build,
        lambda: {
            "optimizer": keras.optimizers.SGD(0.1),
            "loss": "mse",
            "metrics": ["mae", "cosine_similarity", keras.metrics.CategoricalHinge()],
        },
        lambda: {"x": _X, "y": _X[:, 0], "batch_size": _BATCH},
        evaluated=True,
        global_batch=_BATCH,
    )


def _along_rows() -> Case:
    return fitting(
        lambda: _dense((6,), "sigmoid"),
        lambda: {
            "optimizer": keras.optimizers.SGD(0.1),
            "loss": keras.losses.CosineSimilarity(axis=-2),
            "metrics": [keras.metrics.CosineSimilarity(axis=-2)],
        },
        lambda: {"x": _X, "y": _X[:, :3], "batch_size": _BATCH},
        evaluated=True,
        global_batch=_BATCH,
    )


CASES: dict[str, Case] = {
    "metrics of one number for each row": _without_a_column(),
    "loss and metric along the last axis but one": _along_rows(),
    **{f"losses of {target}": _losing(target) for target in LOSSES},
    **{f"loss {name}": _losing_alone(name) for name in ALONE},
    **{f"metrics of {target}": _measuring(target) for target in METRICS},
}
