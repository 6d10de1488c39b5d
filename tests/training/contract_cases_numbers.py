"""Cases of the contract: what a step changes in Python, batches that are drawn, and several outputs."""

from __future__ import annotations

import collections
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.training.contract import GLOBAL_BATCH, Case, Outcome, observe_fit, state_of
from tests.training.contract_cases_anywhere import FEWER, OwnStep, own_step
from tests.training.models import TARGETS, X, sgd

layers = keras.layers


class CountsInPython(OwnStep):
    """The weight of a part of its loss grows with the steps that it has counted."""

    count = 0

    def train_step(self, data: Any) -> Any:
        self.count += 1
        return {**super().train_step(data), "count": self.count}

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.square(y_pred - y)) + min(1.0, self.count / 4) * tf.reduce_mean(tf.square(y_pred))


class BranchesByCount(OwnStep):
    """In a graph the first counts count for ever."""

    count = 0

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        self.count += 1
        if self.count % 3 == 0:
            return tf.reduce_mean(tf.abs(y_pred))
        return tf.reduce_mean(tf.square(y_pred - y))


class KeepsInPython(OwnStep):
    """Weighs its loss by all that it has kept in the steps before; some of it is changed before the update."""

    def __init__(self) -> None:
        super().__init__()
        self.started = False
        self.weight = 0.1
        self.flags: list[int] = []
        self.seen = {"steps": 0, "weights": [0.1]}
        self.recent: Any = collections.deque(maxlen=2)
        self.buffer = np.zeros(3)
        self.slow = tf.constant(1.0)
        self._hidden = [1.0]

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        self.flags.append(1)
        kept = self.weight + len(self.flags) / 5 + self.seen["weights"][-1] + sum(self.recent) + self.buffer.sum()
        weight = kept * self._hidden[-1] * (1.0 if self.started else 0.5)
        self.started = True
        self.slow = self.slow * 0.9
        return self.slow * weight * tf.reduce_mean(tf.square(y_pred - y))

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        self.seen["steps"] += 1
        self.seen["weights"].append(0.1 * self.seen["steps"])
        self.recent.append(0.01 * self.seen["steps"])
        self.buffer[self.seen["steps"] % 3] += 0.05
        self._hidden.append(self._hidden[-1] * 0.95)
        return logs


class KeepsAsTraced(KeepsInPython):
    """Without a tensor, which no other trace could take."""

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        self.slow = 1.0
        return super().loss_of(x, y, y_pred)


class _ChangesIt(keras.callbacks.Callback):
    """After the first batch: what was traced stays as it is."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self.model.weight += 0.3


def _kept(build: Any, **compiled: Any) -> Case:
    def run(dp: Any) -> Outcome:
        with dp.scope():
            model = dp.prepare(build())
            model.compile(sgd(learning_rate=0.05), **compiled)
        model.fit(**FEWER, shuffle=False, epochs=2, verbose=0, callbacks=[_ChangesIt()])
        kept = [len(model.flags), *model.seen["weights"], *model.recent, *model.buffer, *model._hidden]
        return {**state_of(model), "kept": [np.array(kept)]}

    return Case(run)


_RNG = np.random.default_rng(3)


class Drawn(keras.utils.PyDataset):
    """Batches with noise, of a generator of its own and of one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(4)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * GLOBAL_BATCH, min((index + 1) * GLOBAL_BATCH, 60))
        noise = self.generator.normal(size=X[rows].shape) + _RNG.normal()
        return (X[rows] + 0.3 * noise).astype("float32"), TARGETS[rows]


def _drawn(dp: Any) -> Outcome:
    _RNG.bit_generator.state = np.random.default_rng(3).bit_generator.state
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((8,)), layers.Dense(2)]))
        model.compile(sgd(), "mse")
    return observe_fit(model, {"x": Drawn()})


class _Centred(layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs - keras.ops.mean(inputs, axis=0, keepdims=True)


def _two_outputs(dp: Any) -> Outcome:
    with dp.scope():
        inputs = keras.Input((8,))
        hidden = _Centred()(layers.Dense(4)(inputs))
        outputs = {name: layers.Dense(2, name=name)(hidden) for name in ("first", "second")}
        model = dp.prepare(keras.Model(inputs, outputs))
        model.compile(sgd(), {"first": "mse", "second": "mae"})
    return observe_fit(model, {**FEWER, "y": dict.fromkeys(outputs, FEWER["y"])})


CASES: dict[str, Case] = {
    "a number of Python, run_eagerly": own_step(CountsInPython, data=FEWER, run_eagerly=True),
    "a number of Python, as it was traced": own_step(BranchesByCount, data=FEWER),
    "what a step keeps in Python, run_eagerly": _kept(KeepsInPython, run_eagerly=True),
    "what a step keeps in Python, as it was traced": _kept(KeepsAsTraced),
    "a PyDataset that draws": Case(_drawn),
    "two outputs of rows that meet": Case(_two_outputs),
}
