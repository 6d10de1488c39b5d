"""Side inputs: a table beside the rows of each batch. Every function runs in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.contract import PlainKeras

BATCH, ROWS = 12, 30
_RNG = np.random.default_rng(3)
X = _RNG.normal(size=(ROWS, 6)).astype("float32")
Y = _RNG.normal(size=ROWS).astype("float32")


class WithTable(keras.Model):
    """Scales a prediction by the mean of the table and by how long it is."""

    def __init__(self, rows: str, table: str):
        super().__init__()
        self.names = rows, table
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        rows, table = (inputs[name] for name in self.names)
        place = keras.ops.arange(1, keras.ops.shape(table)[0] + 1, dtype="float32")
        return self.dense(rows) * (1.0 + keras.ops.sum(table * place) / keras.ops.sum(place))


class Batches(keras.utils.PyDataset):
    """The batches, with the table in each."""

    def __init__(self, rows: str, table: str, size: int, *, labelled: bool = True, labels: int = 1):
        super().__init__()
        self.names, self.table, self.labelled, self.labels = (rows, table), make_table(size), labelled, labels

    def __len__(self) -> int:
        return -(-ROWS // BATCH)

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        x = {self.names[0]: X[rows], self.names[1]: self.table}
        return (x, np.repeat(Y[rows], self.labels)) if self.labelled else (x,)


def make_table(size: int) -> np.ndarray:
    return np.linspace(-1, 1, size).astype("float32") if size > 1 else np.array([0.5], "float32")


def _model(dp: Any, rows: str, table: str) -> keras.Model:
    with dp.scope():
        model = dp.prepare(WithTable(rows, table))
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    return model


def _data(kind: str, rows: str, table: str, size: int) -> Any:
    if "PyDataset" in kind:
        return Batches(rows, table, size)
    if kind == "generator":
        return _generated(rows, table, size)
    batched = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=kind == "drop_remainder")
    values = tf.constant(make_table(size))
    return batched.map(lambda x, y: ({rows: x, table: values}, y))


def _generated(rows: str, table: str, size: int) -> Iterator[Any]:
    batches = Batches(rows, table, size)
    while True:
        for index in range(len(batches)):
            yield batches[index]


def train(num_replicas: int, kind: str, rows: str, table: str, size: int) -> dict[str, Any]:
    """Weights, logs, evaluation and predictions after two epochs; 0 replicas are plain Keras."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    dp: Any = PlainKeras()
    if num_replicas:
        tfscale.simulate_replicas(num_replicas)
        micro = "auto" if "auto" in kind else 2 if "micro" in kind else None
        dp = tfscale.DataParallel(global_batch=BATCH, micro_batch=micro)
    model = _model(dp, rows, table)
    steps = {"steps_per_epoch": 3} if kind == "generator" else {}
    history = model.fit(_data(kind, rows, table, size), epochs=2, shuffle=False, verbose=0, **steps).history
    steps = {"steps": 3} if steps else {}
    return {
        "weights": model.get_weights(),
        **{name: [np.array(values)] for name, values in history.items()},
        "evaluate": [np.array(model.evaluate(_data(kind, rows, table, size), verbose=0, **steps))],
        "predict": [model.predict(_data(kind, rows, table, size), verbose=0, **steps)],
    }


def refused(num_replicas: int, name: str) -> str:
    """What is said of data of which nobody can tell what holds the rows."""
    keras.backend.clear_session()
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH)
    model = _model(dp, "a", "z")
    # Builds it.
    model.evaluate(Batches("a", "z", 5), verbose=0)
    before = [np.array(each) for each in model.get_weights()]
    doubled = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    doubled = doubled.map(lambda x, y: ({"a": x, "z": tf.zeros(3)}, tf.repeat(y, 2)))
    calls = {
        "labels of another number": lambda: model.fit(doubled, verbose=0),
        "labels of another number, known": lambda: model.fit(
            tf.data.Dataset.from_tensors(({"a": X[:12], "z": X[:12, 0]}, np.repeat(Y[:12], 2))).repeat(2), verbose=0
        ),
        # The last batch has six rows.
        "sometimes the rows": lambda: model.fit(Batches("a", "z", 6), shuffle=False, verbose=0),
        "no labels": lambda: model.predict(Batches("a", "z", 5, labelled=False), verbose=0),
    }
    try:
        calls[name]()
    except tfscale.TfscaleError as error:
        unchanged = all(map(np.array_equal, before, model.get_weights()))
        return f"{type(error).__name__}: {error}" if unchanged or "sometimes" in name else "changed"
    return "no error"
