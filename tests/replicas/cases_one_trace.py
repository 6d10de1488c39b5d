"""Steps traced once for all replicas, and by each of them. Every function here runs in a process of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tfscale.replicas import one_trace
from tfscale.training.step import unprepared

ROWS = 12


# No list: what counts in Python is put back for each replica.
CALLS: queue.SimpleQueue[str] = queue.SimpleQueue()


class Counting(keras.layers.Layer):
    """Notes each time that its Python is run, where no step of the model is at home."""

    def call(self, inputs: Any) -> Any:
        CALLS.put(self.name)
        return inputs

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


class SharedCount(keras.layers.Layer):
    """Changes a variable that was made outside of the scope: one for all replicas."""

    shared: Any = None

    def call(self, inputs: Any) -> Any:
        SharedCount.shared.assign_add(1.0)
        return inputs


class ByNumber(keras.layers.Layer):
    """Asks Python which replica it is on, and adds nothing of it."""

    def call(self, inputs: Any) -> Any:
        number = tf.distribute.get_replica_context()
        return inputs if number is None else inputs + 0 * int(tf.get_static_value(number.replica_id_in_sync_group))


class TensorFlowNoise(keras.layers.Layer):
    """Draws by a generator that an operation keeps for itself."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs + tf.random.normal(tf.shape(inputs)) if training else inputs


class Centred(keras.layers.Layer):
    """Rows that meet."""

    def call(self, inputs: Any) -> Any:
        return inputs - tf.reduce_mean(tfscale.gather_rows(inputs), axis=0)


class Meeting(keras.layers.Layer):
    """Rows that meet by TensorFlow's own means."""

    def call(self, inputs: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return inputs - tf.reduce_mean(context.all_gather(inputs, axis=0), axis=0) if context else inputs


class InsideOfLoop(keras.layers.Layer):
    """A loop and a condition, each a graph of its own."""

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, inputs: Any) -> Any:
        total = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * self.scale), (0, inputs))[1]
        return tf.cond(tf.reduce_sum(self.scale) > 0, lambda: total * self.scale, lambda: inputs)


def _layers(*layers: keras.layers.Layer, width: int = 4) -> keras.Model:
    return keras.Sequential([keras.Input((width,)), *layers, keras.layers.Dense(1)])


def _tokens() -> keras.Model:
    inputs = keras.Input((4,), dtype="int32")
    tokens = keras.layers.Embedding(10, 3)(inputs)
    places = keras.layers.Embedding(4, 3)(keras.ops.arange(4))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(tokens + places)))


MODELS: dict[str, Callable[[], keras.Model]] = {
    "dense": _layers,
    "dropout": lambda: _layers(keras.layers.Dense(8, activation="relu"), keras.layers.Dropout(0.5, seed=3)),
    "BatchNormalization": lambda: _layers(keras.layers.Dense(4), keras.layers.BatchNormalization()),
    "tokens": _tokens,
    "loops": lambda: _layers(InsideOfLoop()),
    "recurrent": lambda: _layers(keras.layers.Reshape((2, 2)), keras.layers.LSTM(3)),
    "shared": lambda: _layers(SharedCount()),
    "by number": lambda: _layers(ByNumber()),
    "tf.random": lambda: _layers(TensorFlowNoise()),
    "rows of all": lambda: _layers(Centred()),
    "rows that meet": lambda: _layers(Meeting()),
}
OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "accumulation": lambda: keras.optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "clipped": lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.1),
    "averaged": lambda: keras.optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2),
}


@contextlib.contextmanager
def _each_by_itself() -> Iterator[None]:
    """As before there was one trace."""
    os.environ["TFSCALE_TRACE"] = "each"
    try:
        yield
    finally:
        del os.environ["TFSCALE_TRACE"]


def _data(name: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 10, (rows, 4)) if name == "tokens" else rng.normal(size=(rows, 4)).astype("float32")
    return x, rng.normal(size=(rows, 1)).astype("float32")


def _trained(
    dp: Any, name: str, compiled: str, *, watched: bool = False, rows: int = 3 * ROWS - 5
) -> dict[str, np.ndarray]:
    """All that a `fit`, an `evaluate` and a `predict` leave."""
    keras.utils.set_random_seed(1)
    with dp.scope():
        model = dp.prepare(MODELS[name](), check="off")
        optimizer = OPTIMIZERS.get(compiled, lambda: keras.optimizers.SGD(0.1))()
        model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=3 if compiled == "several steps" else 1)
    x, y = _data(name, rows)
    callbacks = dp.callbacks() if watched else []
    history = model.fit(x, y, batch_size=ROWS, epochs=2, verbose=0, callbacks=callbacks)
    found = {f"weight {index}": np.asarray(value) for index, value in enumerate(model.get_weights())}
    found |= {f"slot {index}": np.asarray(value) for index, value in enumerate(optimizer.variables)}
    found |= {f"log {key}": np.asarray(value) for key, value in history.history.items()}
    found["evaluate"] = np.asarray(model.evaluate(x, y, batch_size=ROWS, verbose=0))
    found["predict"] = model.predict(x, batch_size=ROWS, verbose=0)
    return found


def _differing(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> list[str]:
    assert ours.keys() == theirs.keys()
    # TensorFlow's optimizer of graphs may give the sum of squares, by which gradients are clipped, another order.
    return [key for key, value in ours.items() if np.max(np.abs(value - theirs[key])) > 1e-6 * np.max(np.abs(value))]


def compare(
    rows: list[tuple[str, str, bool]], num_replicas: int
) -> dict[tuple[str, str, bool], tuple[list[str], list[str]]]:
    """By row what differs by more than a rounding from steps that are traced by each replica, and why any was."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=ROWS, devices=num_replicas)
    found = {}
    for name, compiled, watched in rows:
        with _reasons() as reasons:
            ours = _trained(dp, name, compiled, watched=watched)
        with _each_by_itself():
            theirs = _trained(dp, name, compiled, watched=watched)
        found[name, compiled, watched] = _differing(ours, theirs), reasons
    return found


@contextlib.contextmanager
def _reasons() -> Iterator[list[str]]:
    """Why steps were traced by each replica."""
    found: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    logger, handler = logging.getLogger(one_trace.__name__), Keeping()
    logger.addHandler(handler)
    before, logger.level = logger.level, logging.INFO
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def why_each(names: list[str], num_replicas: int) -> dict[str, tuple[list[str], list[str]]]:
    """By model why its steps are traced by each replica, and what differs from the one-replica run."""
    tfscale.simulate_replicas(num_replicas)
    SharedCount.shared = tf.Variable(0.0)
    dp = tfscale.DataParallel(global_batch=ROWS, devices=num_replicas)
    found = {}
    for name in names:
        with _reasons() as reasons:
            _trained(dp, name, "", rows=ROWS)
        found[name] = reasons
    return found


def count_calls(num_replicas: int, rows: int) -> tuple[int, int]:
    """How often the Python of a layer is run in the first step of `fit`: traced once, and by each replica."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=rows, devices=num_replicas)
    counts = []
    for way in (contextlib.nullcontext, _each_by_itself):
        with dp.scope():
            model = dp.prepare(_layers(Counting()), check="off")
            model.compile("sgd", "mse")
        data = tf.data.Dataset.from_tensor_slices(_data("dense", rows)).batch(rows, drop_remainder=True)
        before = CALLS.qsize()
        with way():
            model.fit(data, verbose=0)
        counts.append(CALLS.qsize() - before)
    return counts[0], counts[1]


def draws(num_replicas: int) -> np.ndarray:
    """What each replica draws for rows that are equal, by an operation without a seed: `[replicas, width]`."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=num_replicas, devices=num_replicas)

    class Noise(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs + tf.random.normal(tf.shape(inputs))

    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((4,)), Noise()]), check="off")
    assert unprepared.is_prepared(model)
    with _reasons() as reasons:
        found = model.predict(np.zeros((num_replicas, 4), "float32"), verbose=0)
    assert not reasons
    return found


def misspelt() -> str:
    """What is said of a variable of the environment that says neither."""
    tfscale.simulate_replicas(2)
    dp = tfscale.DataParallel(global_batch=ROWS, devices=2)
    os.environ["TFSCALE_TRACE"] = "never"
    try:
        _trained(dp, "dense", "")
    except tfscale.TfscaleError as error:
        return str(error)
    finally:
        del os.environ["TFSCALE_TRACE"]
    return ""
