"""Cases of the contract: metrics in the logs of each batch, of each epoch and of `evaluate`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.training.contract import Case, Outcome, arrays_by_name, fitting, flat_arrays
from tests.training.models import (
    FEWER_THAN_REPLICAS,
    LABELS,
    WEIGHTS,
    X,
    adam,
    cross_entropy,
    labelled,
    mlp,
    normalised,
    sgd,
    targeted,
)


def measuring(*metrics: Any, build: Any = None, loss: Any = None, data: Any = None, **judged: Any) -> Case:
    """A model of one output, with metrics made by `metrics`."""
    return fitting(
        build or _binary,
        lambda: {
            "optimizer": sgd(),
            "loss": loss or "binary_crossentropy",
            "metrics": [make() for make in metrics],
        },
        data or _binary_data(),
        evaluated=True,
        **judged,
    )


def _binary() -> keras.Model:
    model = mlp(outputs=1)
    return keras.Sequential([*model.layers, keras.layers.Activation("sigmoid")])


def _binary_data(rows: int = 250, **more: Any) -> Any:
    return lambda: {
        "x": X[:rows],
        "y": LABELS[:rows, None].astype("float32"),
        "batch_size": 24,
        **more,
    }


class TracksItsOwn(keras.Model):
    """Counts something in `call`, with a metric it holds itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(16, activation="tanh")
        self.second = keras.layers.Dense(2)
        self.size = keras.metrics.Mean(name="size")

    def call(self, inputs: Any) -> Any:
        hidden = self.first(inputs)
        self.size.update_state(keras.ops.abs(hidden))
        return self.second(hidden)


class Largest(keras.metrics.Metric):
    """A state that is no sum: the largest error so far, of any row."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_weight(shape=(), initializer="zeros", name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        del sample_weight
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(keras.ops.abs(y_true - y_pred))))

    def result(self) -> Any:
        return self.value + 0.0


class Lowest(keras.metrics.Metric):
    """A state that begins with a large number, and is zero after Keras's own reset."""

    def __init__(self) -> None:
        super().__init__(name="lowest")
        self.value = self.add_weight(shape=(), initializer=keras.initializers.Constant(1e9), name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        del sample_weight
        self.value.assign(keras.ops.minimum(self.value, keras.ops.min(keras.ops.abs(y_true - y_pred))))

    def result(self) -> Any:
        return self.value + 0.0


class LowestOfEpoch(Lowest):
    """As `Lowest`, in every epoch."""

    def reset_state(self) -> None:
        self.value.assign(1e9)


class OfAllEpochs(keras.metrics.MeanSquaredError):
    """As in Keras's own tests: it goes on counting from epoch to epoch."""

    def reset_state(self) -> None:
        pass


class CountsFromOne(keras.metrics.Metric):
    """Counts rows, of which it takes one for granted when it is made."""

    def __init__(self) -> None:
        super().__init__(name="counted")
        self.count = self.add_weight(shape=(2,), initializer="ones", dtype="int32", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        del y_pred, sample_weight
        self.count.assign_add(keras.ops.ones((2,), "int32") * keras.ops.shape(y_true)[0])

    def result(self) -> Any:
        return keras.ops.cast(self.count[0], "float32")


def _shared_metrics(dp: Any) -> Outcome:
    """As where a default argument of the function that compiles makes them.

    Keras cannot reset what is not in a model's metrics yet: each model's first epoch goes on counting.
    """
    with dp.scope():
        metrics = [keras.metrics.SparseCategoricalAccuracy(name="accuracy"), CountsFromOne()]
    outcome: Outcome = {"history": [], "evaluate": []}
    for rows in (250, 50, 29):
        with dp.scope():
            model = dp.prepare(mlp())
            model.compile(sgd(), cross_entropy(), metrics=metrics)
        if rows != 50:
            history = model.fit(X[:rows], LABELS[:rows], batch_size=24, epochs=2, verbose=0, shuffle=False)
            outcome["history"] += arrays_by_name(history.history)
        outcome["evaluate"] += flat_arrays(model.evaluate(X[:rows], LABELS[:rows], batch_size=24, verbose=0))
    return outcome


def _counted_before(dp: Any) -> Outcome:
    """Metrics that a script has counted with by itself, before a model has them: its first epoch goes on counting."""
    with dp.scope():
        metrics = [keras.metrics.SparseCategoricalAccuracy(name="accuracy"), CountsFromOne()]
        predictions = keras.ops.one_hot(1 - LABELS[:14], 2)
        for metric in metrics:
            metric.update_state(LABELS[:14], predictions)
            metric.update_state(LABELS[:6], predictions[:6])
        outcome: Outcome = {"before": flat_arrays([float(metric.result()) for metric in metrics])}
        model = dp.prepare(mlp())
        model.compile(sgd(), cross_entropy(), metrics=metrics)
    history = model.fit(X[:50], LABELS[:50], batch_size=24, epochs=2, verbose=0, shuffle=False)
    outcome["history"] = arrays_by_name(history.history)
    return outcome


class Counts(keras.metrics.Metric):
    """Counts rows in a number of any type that begins with any other."""

    def __init__(self, dtype: str, begin: int) -> None:
        super().__init__(name="counts")
        self.begin = begin
        self.rows = self.add_weight(shape=(), initializer=keras.initializers.Constant(begin), dtype=dtype, name="rows")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        del y_pred, sample_weight
        self.rows.assign_add(keras.ops.cast(keras.ops.shape(y_true)[0], self.rows.dtype))

    def reset_state(self) -> None:
        self.rows.assign(keras.ops.cast(self.begin, self.rows.dtype))

    def result(self) -> Any:
        return self.rows + 0


def _counted_by_hand(dp: Any) -> Outcome:
    """Metrics that no model has, of whole numbers and of others, in Python, in a function and after a reset."""
    outcome: Outcome = {"counted": []}
    with dp.scope():
        for dtype in ("int32", "int64", "float32"):
            for begin in (0, 1):
                metric = Counts(dtype, begin)
                count = tf.function(metric.update_state)
                for rows in (8, 8, 1):
                    metric.update_state(X[:rows], X[:rows])
                outcome["counted"].append(np.array(metric.result()))
                count(X[:4], X[:4])
                outcome["counted"].append(np.array(metric.result()))
                metric.reset_state()
                metric.update_state(X[:3], X[:3])
                outcome["counted"].append(np.array(metric.result()))
    return outcome


_M = keras.metrics

CASES: dict[str, Case] = {
    "metrics AUC, precision, recall": measuring(
        lambda: _M.AUC(num_thresholds=50), _M.Precision, _M.Recall, lambda: "accuracy"
    ),
    "metrics, last batch smaller than N": measuring(
        _M.AUC, lambda: _M.F1Score(threshold=0.5), data=_binary_data(FEWER_THAN_REPLICAS)
    ),
    "metric whose state is a maximum, last batch smaller than N": measuring(
        Largest, data=_binary_data(FEWER_THAN_REPLICAS)
    ),
    "metric that begins with a large number": measuring(Lowest, data=_binary_data(FEWER_THAN_REPLICAS)),
    "metric that is reset to a large number": measuring(LowestOfEpoch, data=_binary_data(FEWER_THAN_REPLICAS)),
    "metric that counts from one on": measuring(CountsFromOne),
    "metric that is never reset": measuring(OfAllEpochs),
    "metric that counts from one on, run_eagerly": fitting(
        _binary,
        lambda: {
            "optimizer": sgd(),
            "loss": "binary_crossentropy",
            "metrics": [CountsFromOne()],
            "run_eagerly": True,
        },
        _binary_data(60),
        evaluated=True,
    ),
    "metrics that several models share": Case(_shared_metrics),
    "metrics counted by hand before a model has them": Case(_counted_before),
    "metrics counted by hand, no model": Case(_counted_by_hand),
    "metric of whole numbers that is reset to one": measuring(lambda: Counts("int32", 1)),
    "metrics MeanIoU and accuracy": measuring(
        lambda: _M.MeanIoU(num_classes=2, sparse_y_pred=False),
        _M.SparseCategoricalAccuracy,
        build=mlp,
        loss=cross_entropy(),
        data=labelled(),
    ),
    "metrics R2Score and RootMeanSquaredError": measuring(
        _M.R2Score,
        _M.RootMeanSquaredError,
        build=lambda: mlp(outputs=2),
        loss="mse",
        data=targeted(),
    ),
    "metrics that are losses of the whole batch": measuring(
        lambda: keras.losses.dice,
        lambda: keras.losses.tversky,
        lambda: keras.losses.Dice(name="dice_of_all"),
        # Quotients of sums, each rounded, of numbers of both signs.
        tolerance=2e-4,
        build=lambda: mlp(outputs=2),
        loss="mse",
        data=targeted(),
    ),
    "metrics, weighted_metrics": fitting(
        _binary,
        lambda: {
            "optimizer": adam(),
            "loss": "binary_crossentropy",
            "metrics": [_M.BinaryAccuracy()],
            "weighted_metrics": [_M.AUC(), _M.BinaryAccuracy(name="weighted")],
        },
        _binary_data(sample_weight=WEIGHTS),
        evaluated=True,
    ),
    "metric functions of the user's own": measuring(
        lambda: _share_of_positives, build=mlp, loss=cross_entropy(), data=labelled()
    ),
    "metric that the model holds": fitting(
        TracksItsOwn,
        lambda: {"optimizer": sgd(), "loss": cross_entropy(), "metrics": ["accuracy"]},
        labelled(),
        evaluated=True,
    ),
    "metrics with steps_per_execution": fitting(
        normalised,
        lambda: {
            "optimizer": sgd(),
            "loss": cross_entropy(),
            "metrics": ["accuracy"],
            "steps_per_execution": 3,
        },
        labelled(validation_data=(X[:31], LABELS[:31])),
        evaluated=True,
    ),
}


def _share_of_positives(y: Any, y_pred: Any) -> Any:
    return keras.ops.cast(y_pred[:, 1] > y_pred[:, 0], "float32")
