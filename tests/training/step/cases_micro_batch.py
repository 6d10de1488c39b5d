"""Micro-steps where memory is short, and where they cannot be. Every function runs in its own process."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.contract_cases_models import LossByHand
from tests.training.models import LABELS, TARGETS, X, classifying, mlp


class Hungry(keras.layers.Layer):
    """Asks for a petabyte when it gets more than so many rows."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def call(self, inputs: Any) -> Any:
        rows = tf.shape(inputs)[0]
        # Never true; but TensorFlow would make a constant of what it knows before.
        unknown = tf.cast(tf.timestamp() < 0, tf.int64)
        wanted = unknown + tf.where(rows > self.most, tf.constant(2**48, tf.int64), tf.constant(1, tf.int64))
        return inputs + 0 * tf.reduce_sum(tf.fill([wanted], 1.0))


def _fit(dp: Any, build: Callable[[], keras.Model], **compiled: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    with dp.scope():
        model = dp.prepare(build())
        model.compile(**(compiled or classifying()()))
    model.fit(X[:32], LABELS[:32], shuffle=False, verbose=0)
    return model


def _error(call: Callable[[], Any]) -> tuple[str, str]:
    try:
        call()
    except tfscale.TfscaleError as error:
        return type(error).__name__, str(error)
    return "no error", ""


def too_little_memory(num_replicas: int) -> dict[str, Any]:
    """What "auto" makes of layers that take so many rows at most, of the 8 of a replica."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(per_replica_batch=8, micro_batch="auto")
    by_hand = tfscale.DataParallel(per_replica_batch=8, devices=dp.strategy)

    found: dict[str, Any] = {}
    for most in (8, 3):
        model = _fit(dp, lambda most=most: mlp(lambda: Hungry(most)))
        (line,) = [line for line in str(dp).splitlines() if line.startswith(f"{model.name}:")]
        plain = _fit(by_hand, lambda: mlp(lambda: Hungry(8)))
        largest = max(np.abs(a - b).max() for a, b in zip(model.get_weights(), plain.get_weights(), strict=True))
        found[str(most)] = line.partition(": ")[2], float(largest)
    found["0"] = _error(lambda: _fit(dp, lambda: mlp(lambda: Hungry(0))))
    found["own train_step"] = _error(lambda: _fit(dp, LossByHand))
    given = tfscale.DataParallel(per_replica_batch=8, devices=dp.strategy, micro_batch=3)
    found["own train_step, given"] = _error(lambda: _fit(given, LossByHand))
    compiled = {"optimizer": "sgd", "loss": lambda y, y_pred: tf.reduce_mean(y_pred)}
    found["one number"] = _error(lambda: _fit(given, mlp, **compiled))
    found["plan"] = given.plan.micro_batch, given.plan.accumulation

    def of_any_length() -> keras.Model:
        return keras.Sequential([keras.Input((None, 8)), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(2)])

    with dp.scope():
        model = dp.prepare(of_any_length())
        model.compile(**classifying()())
    lengths = tf.data.Dataset.from_generator(
        lambda: iter([(np.ones((16, 5, 8)), LABELS[:16])]),
        output_signature=(tf.TensorSpec((None, None, 8)), tf.TensorSpec((None,), tf.int32)),
    )
    found["any length"] = _error(lambda: model.fit(lengths, verbose=0))
    return found


def masks(num_replicas: int) -> dict[str, Any]:
    """What dropout draws: the inputs are ones, and the layer keeps what came out."""
    tfscale.simulate_replicas(num_replicas)

    class Kept(keras.layers.Layer):
        """Adds each row that it sees, as a number, to a list."""

        seen: ClassVar[list[int]] = []

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                tf.numpy_function(self._keep, [inputs], [], stateful=True)
            return inputs

        def _keep(self, rows: np.ndarray) -> None:
            self.seen.extend(int("".join(map(str, row)), 2) for row in (rows != 0).astype(int))

    def run(micro_batch: int | None, steps: int) -> tuple[list[int], Any]:
        keras.utils.set_random_seed(1)
        dp = tfscale.DataParallel(global_batch=24, micro_batch=micro_batch)
        Kept.seen.clear()
        with dp.scope():
            dropout = keras.layers.Dropout(0.5, seed=3)
            layers = [keras.Input((40,)), dropout, Kept(), keras.layers.Dense(1)]
            model = dp.prepare(keras.Sequential(layers), check="off")
            model.compile("sgd", "mse")
        model.fit(np.ones((24 * steps, 40), "float32"), np.ones((24 * steps, 1)), verbose=0, shuffle=False)
        copies = dp.strategy.experimental_local_results(dropout.seed_generator.state.value)
        return list(Kept.seen), [np.array(copy).tolist() for copy in copies]

    once, state = run(None, 2)
    parts, state_of_parts = run(5, 2)
    again, _ = run(5, 2)
    return {"once": once, "parts": parts, "again": again, "state": state, "state of parts": state_of_parts}


def peak_bytes(micro_batch: int | None) -> tuple[int, list[float]]:
    """The most memory that two steps of 8192 rows of a wide MLP took above what was there before, and its weights."""
    dp = tfscale.DataParallel(per_replica_batch=8192, micro_batch=micro_batch, devices=1)
    keras.utils.set_random_seed(1)
    with dp.scope():
        wide = [keras.layers.Dense(512, activation="tanh") for _ in range(8)]
        model = dp.prepare(keras.Sequential([keras.Input((8,)), *wide, keras.layers.Dense(2)]))
        model.compile("sgd", "mse")
    x, y = np.resize(X, (16384, 8)), np.resize(TARGETS, (16384, 2))
    before = _peak_bytes_so_far()
    model.fit(x, y, shuffle=False, verbose=0)
    taken = _peak_bytes_so_far() - before
    return taken, [float(np.sum(np.square(weight))) for weight in model.get_weights()]


def _peak_bytes_so_far() -> int:
    """Of this program: `ru_maxrss` begins with what the process had that started it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


def searches(num_replicas: int) -> list[int]:
    """How often "auto" has searched after a `fit` with callbacks that make the train function anew, and later on."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=16, micro_batch="auto")
    counted = _Counted()
    log = logging.getLogger("tfscale.training.step.micro_batch")
    level = log.level
    log.addHandler(counted)
    log.setLevel(logging.INFO)
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(**classifying()())
    found = []
    for callbacks in ([*dp.callbacks(), tfscale.callbacks.StallWatch(60)], None):
        model.fit(X[:32], LABELS[:32], verbose=0, callbacks=callbacks)
        found.append(counted.searches)
    with dp.scope():
        model.compile(**classifying()())
    model.fit(X[:32], LABELS[:32], verbose=0)
    log.setLevel(level)
    log.removeHandler(counted)
    return [*found, counted.searches]


class _Counted(logging.Handler):
    searches = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.searches += "micro_batch=" in record.getMessage()


def drawing_without_seed(num_replicas: int) -> dict[str, Any]:
    """Losses of a layer that draws without a seed, and whether a `fit` without it leaves Python's numbers alone."""
    tfscale.simulate_replicas(num_replicas)

    class Noise(keras.layers.Layer):
        def call(self, inputs: Any, training: bool = False) -> Any:
            return inputs + 0.1 * keras.random.normal(keras.ops.shape(inputs)) if training else inputs

    x = np.random.default_rng(0).normal(size=(28, 4)).astype("float32")

    def trained(layers: list[keras.layers.Layer]) -> tuple[list[float], bool]:
        dp = tfscale.DataParallel(global_batch=8, micro_batch=2, seed=5)
        with dp.scope():
            model = dp.prepare(keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)]))
            model.compile("sgd", "mse")
        before = random.getstate()
        history = model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0, shuffle=False).history
        return history["loss"], random.getstate() == before

    _, alone = trained([])
    return {"left alone": alone, "losses": trained([Noise()])[0]}


class _LogsMore(keras.Sequential):
    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "largest": keras.ops.max(y_pred)}


def more_is_logged() -> str:
    """The error where a model logs more than its metrics, of which a part of the rows knows nothing."""
    tfscale.simulate_replicas(2)
    dp = tfscale.DataParallel(global_batch=8, micro_batch=2)
    with dp.scope():
        model = dp.prepare(_LogsMore([keras.Input((3,)), keras.layers.Dense(1)], name="more"), check="off")
        model.compile("sgd", "mse")
    try:
        model.fit(np.ones((8, 3), "float32"), np.ones((8, 1), "float32"), batch_size=8, verbose=0)
    except tfscale.ModelError as error:
        return str(error)
    return ""
