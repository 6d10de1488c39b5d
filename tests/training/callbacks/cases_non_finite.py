"""Losses that are not finite in some steps, in all forms of a step. Each function is called in a child."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tfscale.replicas.progress import watch_progress
from tfscale.replicas.replica_batch import local_replicas

BATCH = 12
# The last batch of an epoch is smaller.
ROWS = 5 * BATCH - 6
X = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
Y = X.sum(axis=1) + 1.0
# By batch, the row of the batch that has a label which is not a number.
IN_MIDDLE, AT_END = {2: 5}, {2: 5, 4: 5}


class OwnStep(keras.Sequential):
    """A model with a training step of its own, as in Keras's guides."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


class TwoUpdates(keras.Sequential):
    """Updates twice in a step, with logs of its own."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True)[:, 0] - y) ** 2)
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"squared_loss": loss, "rows": 1.0}


class RowsMeet(keras.Sequential):
    """A loss of which every replica needs all rows."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **more: Any):
        del x, sample_weight, more
        apart = y_pred - keras.ops.transpose(y_pred)
        return keras.ops.mean((apart - (y[:, None] - y[None])) ** 2)


def _layers(norm: bool) -> list[Any]:
    normed = [keras.layers.BatchNormalization()] if norm else []
    return [keras.Input((4,)), keras.layers.Dense(8, activation="tanh"), *normed, keras.layers.Dense(1)]


def _adam(**options: Any) -> Any:
    return lambda: keras.optimizers.Adam(0.01, **options)


def _scaled() -> Any:
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=256.0)


PLAIN = {"cls": keras.Sequential, "optimizer": _adam(), "compiled": {}, "given": {}, "norm": True}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "local statistics, EMA and clipping": {
        "given": {"batch_norm": "local"},
        "optimizer": _adam(use_ema=True, ema_overwrite_frequency=2, global_clipnorm=1.0),
    },
    "several steps per call": {"compiled": {"steps_per_execution": 3}},
    "accumulation, several steps": {
        "optimizer": _adam(gradient_accumulation_steps=2),
        "compiled": {"steps_per_execution": 3},
    },
    "micro-steps": {"given": {"micro_batch": 2}, "norm": False},
    "loss scale": {"optimizer": _scaled},
    "eager": {"compiled": {"run_eagerly": True}},
    "XLA": {"compiled": {"jit_compile": True}, "norm": False},
    "own step, several steps": {"cls": OwnStep, "compiled": {"steps_per_execution": 3}},
    "two updates": {"cls": TwoUpdates, "norm": False},
    "rows meet": {"cls": RowsMeet, "norm": False},
    "double buffering": {"given": {"network": tfscale.Network(double_buffering=True)}},
    "compression": {"given": {"network": tfscale.Network(compression=tfscale.PowerSGD(1))}, "norm": False},
    "AdaScale": {"optimizer": lambda: tfscale.AdaScaleSGD(0.01, reference_batch=4), "norm": False},
}
# What these train depends on the number of replicas.
OF_REPLICAS = {"local statistics, EMA and clipping", "double buffering", "compression", "AdaScale"}
# The gradient of the last bias is zero but for roundings, which Adam makes whole steps of; plain Keras does not fit a
# step of two updates that leaves the loss to itself.
OF_REPLICAS |= {"rows meet", "two updates"}


class Messages(logging.Handler):
    """What tfscale has logged meanwhile about losses."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "non_finite" in record.name:
            self.said.append(record.getMessage())

    def __enter__(self) -> Messages:
        logging.getLogger("tfscale").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("tfscale").removeHandler(self)


def _made(form: str, num_replicas: int) -> tuple[Any, keras.Model]:
    """A model, on replicas."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    chosen = PLAIN | FORMS[form]
    keras.backend.clear_session()
    devices = {"devices": 1} if num_replicas == 1 else {}
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1, **devices, **chosen["given"])
    with dp.scope():
        # Only a look finds that rows meet.
        model = dp.prepare(chosen["cls"](_layers(chosen["norm"])), check="off" if form != "rows meet" else "auto")
        _compile(model, chosen)
    return dp, model


def _compile(model: keras.Model, chosen: dict[str, Any]) -> None:
    metrics = [] if chosen["cls"] in (TwoUpdates, RowsMeet) else ["mae"]
    model.compile(chosen["optimizer"](), "mse", metrics=metrics, **chosen["compiled"])


def _without(form: str, num_replicas: int, initial: list[np.ndarray]) -> keras.Model:
    """The model without the callback: plain Keras's, which is traced for one device, but where N replicas differ."""
    chosen = PLAIN | FORMS[form]
    if form in OF_REPLICAS:
        return _made(form, num_replicas)[1]
    keras.backend.clear_session()
    model = chosen["cls"](_layers(chosen["norm"]))
    _compile(model, chosen)
    model.set_weights(initial)
    return model


def _data(bad: dict[int, int], left_out: Any = ()) -> tuple[np.ndarray, np.ndarray]:
    y = Y.copy()
    for batch, row in bad.items():
        y[batch * BATCH + row] = np.nan
    kept = [row for row in range(ROWS) if row // BATCH not in left_out]
    return X[kept], y[kept]


def _fit(model: keras.Model, data: Any, callbacks: Any, epochs: int = 2) -> tuple[dict[str, Any], str]:
    try:
        options = {"epochs": epochs, "batch_size": BATCH, "shuffle": False, "verbose": 0}
        return model.fit(*data, callbacks=callbacks, **options).history, ""
    except tfscale.NonFiniteError as error:
        return {}, str(error)


def _state(model: keras.Model) -> list[np.ndarray]:
    return [variable.numpy() for variable in [*model.variables, *model.optimizer.variables]]


def skipped(form: str, num_replicas: int) -> dict[str, Any]:
    """A run in which steps are left out, and one on data without them."""
    _, model = _made(form, num_replicas)
    initial = model.get_weights()
    watch = tfscale.callbacks.NonFiniteWatch("skip")
    with Messages() as messages:
        history, _ = _fit(model, _data(AT_END), [watch])
    result = {"history": history, "state": _state(model), "said": messages.said, "left_out": watch.num_left_out}
    result["found"] = [(each.epoch, each.step, [rows.replica for rows in each.where]) for each in watch.found]
    model = _without(form, num_replicas, initial)
    result["expected_history"], _ = _fit(model, _data({}, left_out=AT_END), None)
    return {**result, "expected_state": _state(model)}


def stopped(form: str, num_replicas: int) -> dict[str, Any]:
    """A run that is stopped, and one on the data of before."""
    _, model = _made(form, num_replicas)
    initial = model.get_weights()
    watch = tfscale.callbacks.NonFiniteWatch()
    _, error = _fit(model, _data(IN_MIDDLE), [watch])
    result = {"error": error, "state": [each.numpy() for each in model.trainable_variables], "where": watch.found}
    model = _without(form, num_replicas, initial)
    _fit(model, _data({}, left_out=(2, 3, 4)), None, epochs=1)
    return {**result, "expected": [each.numpy() for each in model.trainable_variables]}


def reported(form: str, num_replicas: int) -> dict[str, Any]:
    """What is said, and how often something is sent, with the callback and without."""
    dp, model = _made(form, num_replicas)
    progress = watch_progress(model, local_replicas(dp.strategy))[0] if num_replicas > 1 else None
    counts = []
    with Messages() as messages:
        for callbacks in (None, [tfscale.callbacks.NonFiniteWatch("report")]):
            before = progress.read()[0] if progress else 0
            # As many micro-steps as make whole updates.
            _fit(model, _data({}), callbacks)
            counts.append((progress.read()[0] if progress else 0) - before)
        clean = list(messages.said)
        watch = tfscale.callbacks.NonFiniteWatch("report")
        _fit(model, _data(IN_MIDDLE), [watch])
    result = {"clean": clean, "said": messages.said, "found": watch.found, "sent": counts}
    return {**result, "is_finite": [bool(np.isfinite(each).all()) for each in _state(model)]}


def sent_by_skipping(form: str, num_replicas: int) -> list[int]:
    """How often something is sent, with the callback and without."""
    dp, model = _made(form, num_replicas)
    progress, _ = watch_progress(model, local_replicas(dp.strategy))
    counts = []
    for callbacks in (None, [tfscale.callbacks.NonFiniteWatch("skip")]):
        before = progress.read()[0]
        _fit(model, _data({}), callbacks)
        counts.append(progress.read()[0] - before)
    return counts


def _root(y_true: Any, y_pred: Any) -> Any:
    """Finite where both are equal, but its gradient is not."""
    return keras.ops.sqrt(keras.ops.sum((y_true - y_pred) ** 2, axis=-1))


def gradients_alone(action: str, num_replicas: int) -> dict[str, Any]:
    """A loss that is finite, with gradients that are not, on one replica in one step."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    with dp.scope():
        layer = keras.layers.Dense(1, use_bias=False)
        model = dp.prepare(keras.Sequential([keras.Input((4,)), layer]))
        model.compile("sgd", _root)
    x, y = X.copy(), Y.copy()
    x[2 * BATCH + 5], y[2 * BATCH + 5] = 0.0, 0.0
    watch = tfscale.callbacks.NonFiniteWatch(action)
    with Messages() as messages:
        history, error = _fit(model, (x, y), [watch])
    is_finite = all(np.isfinite(each).all() for each in _state(model))
    return {"history": history, "error": error, "said": messages.said, "is_finite": is_finite, "found": watch.found}


def too_large_a_scale(action: str, num_replicas: int) -> dict[str, Any]:
    """Gradients that a `LossScaleOptimizer` skips, and later a loss that is not finite."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    with dp.scope():
        model = dp.prepare(keras.Sequential(_layers(norm=False)))
        # The largest power of two of float32: the scaled loss is infinite.
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=2.0**127)
        model.compile(optimizer, "mse")
    watch = tfscale.callbacks.NonFiniteWatch(action)
    with Messages() as messages:
        _fit(model, _data({}), [watch], epochs=1)
        clean, scale = list(messages.said), float(optimizer.dynamic_scale.numpy())
        _, error = _fit(model, _data(IN_MIDDLE), [watch])
    return {"clean": clean, "scale": scale, "said": messages.said, "error": error}


def in_inputs(norm: str, num_replicas: int) -> list[Any]:
    """Inputs of one row that are not finite, which BatchNormalization carries to all replicas."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1, batch_norm=norm)
    with dp.scope():
        model = dp.prepare(keras.Sequential(_layers(norm=True)))
        model.compile("sgd", "mse")
    x = X.copy()
    x[3 * BATCH + 9, 2] = np.inf
    watch = tfscale.callbacks.NonFiniteWatch("skip")
    _fit(model, (x, Y), [watch], epochs=1)
    return [*watch.found, all(np.isfinite(each).all() for each in _state(model))]


def many(num_replicas: int) -> dict[str, Any]:
    """More steps that are left out than lines; the callback beside those of `dp.callbacks`; then a `fit` without."""
    dp, model = _made("plain", num_replicas)
    watch = tfscale.callbacks.NonFiniteWatch("skip", most_lines=2)
    with Messages() as messages:
        _fit(model, _data(dict.fromkeys(range(1, 5), 0)), [*dp.callbacks(), watch])
    was_finite = all(np.isfinite(each).all() for each in _state(model))
    _fit(model, _data(IN_MIDDLE), None)
    is_finite = all(np.isfinite(each).all() for each in _state(model))
    kinds = [type(callback).__name__ for callback in dp.callbacks()]
    states = {"was_finite": was_finite, "is_finite": is_finite}
    return {"said": messages.said, "left_out": watch.num_left_out, "kinds": kinds, **states}


def checked(action: str, num_replicas: int) -> dict[str, Any]:
    """A step that is compared with that of one replica, watched."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    with dp.scope():
        model = dp.prepare(OwnStep(_layers(norm=True)), check="always")
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    watch = tfscale.callbacks.NonFiniteWatch(action)
    with Messages() as messages:
        history, error = _fit(model, _data({0: 5}), [watch], epochs=1)
    return {"history": history, "error": error, "said": messages.said, "found": watch.found}


def not_prepared() -> str:
    """A model of TensorFlow's own strategy."""
    tfscale.simulate_replicas(2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras.Sequential(_layers(norm=False))
        model.compile("sgd", "mse")
    try:
        model.fit(X[:4], Y[:4], batch_size=4, verbose=0, callbacks=[tfscale.callbacks.NonFiniteWatch()])
    except tfscale.ModelError as error:
        return str(error)
    return ""


def of_workers() -> dict[str, Any]:
    """Two workers with one replica each: row 7 is the second one's."""
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    with dp.scope():
        model = dp.prepare(keras.Sequential(_layers(norm=True)))
        model.compile(keras.optimizers.Adam(0.01), "mse", steps_per_execution=3)
    result: dict[str, Any] = {"kinds": [type(callback).__name__ for callback in dp.callbacks()]}
    for action in ("skip", "stop", "report"):
        with Messages() as messages:
            _, error = _fit(model, _data({2: 7}), [tfscale.callbacks.NonFiniteWatch(action)], epochs=1)
        is_finite = all(np.isfinite(each).all() for each in _state(model))
        result[action] = {"said": messages.said, "error": error, "is_finite": is_finite}
    return result
