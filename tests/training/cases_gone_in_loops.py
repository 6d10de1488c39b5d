"""Workers of which one goes while all run a loop of their own. Every function runs in each worker."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import time
import traceback
import types
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

STEPS, BATCH, STEP = 400, 8, 60
X = np.random.default_rng(0).normal(size=(BATCH, 5)).astype("float32")
Y = X.sum(1, keepdims=True)


def train(loop: str, fault: str, victim: int) -> None:
    """Trains until the worker `victim` does what it does; what becomes of the others is in what they write."""
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    notebook = Notebook() if loop == "in a cell" else None
    if notebook is not None:
        sys.modules["IPython"] = notebook.as_module()
    step = {"on batch": _on_batch, "by hand": _by_hand, "in a cell": _by_hand}[loop](dp)
    befall = _FAULTS[fault] if dp.rank == victim else lambda: None

    def steps() -> None:
        for number in range(1, STEPS + 1):
            step()
            # A second of steps and more, for heartbeats to tell of them.
            time.sleep(0.03)
            if number == STEP:
                befall()

    if notebook is None:
        steps()
    else:
        notebook.run(steps)
        sys.exit(1)


class Notebook:
    """Does with an error of a cell what IPython 9 does: `sys.excepthook` is not asked."""

    custom_exceptions: tuple[type[BaseException], ...] = ()

    def as_module(self) -> types.ModuleType:
        module = types.ModuleType("IPython")
        module.get_ipython = lambda: self  # type: ignore[attr-defined]
        return module

    def set_custom_exc(self, kinds: tuple[type[BaseException], ...], handler: Any) -> None:
        self.custom_exceptions, self.handler = kinds, types.MethodType(handler, self)

    def showtraceback(self, found: Any = None, tb_offset: int | None = None) -> None:
        print("shown by", inspect.stack()[1].filename)
        traceback.print_exception(*(found or sys.exc_info()))

    def run(self, cell: Any) -> None:
        try:
            cell()
        except self.custom_exceptions:
            self.handler(*sys.exc_info(), tb_offset=1)
        except Exception:
            self.showtraceback()


def alone(runs_alone: int) -> tuple[float, float]:
    """One worker runs a function on its replica that sends nothing; then all train. What it gave, and the loss."""
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    found = 0.0
    if dp.rank == runs_alone:
        found = float(dp.strategy.run(tf.function(lambda: tf.reduce_sum(tf.constant(X)))))
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)]))
        model.compile(keras.optimizers.SGD(0.05), "mse")
    return found, model.fit(X, Y, verbose=0).history["loss"][0]


def _on_batch(dp: tfscale.DataParallel) -> Any:
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)]))
        model.compile(keras.optimizers.SGD(0.05), "mse")
    return lambda: model.train_on_batch(X, Y)


def _by_hand(dp: tfscale.DataParallel) -> Any:
    with dp.scope():
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH).repeat()
    batches = iter(dp.strategy.experimental_distribute_dataset(data))

    def step(data: Any) -> None:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(tf.reduce_mean((model(x) - y) ** 2, -1), global_batch_size=BATCH)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    @tf.function
    def distributed(data: Any) -> None:
        dp.strategy.run(step, args=(data,))

    return lambda: distributed(next(batches))


def _fail() -> None:
    raise ValueError("of the script's own")


def _say_when(befall: Any) -> Any:
    def befalls() -> None:
        print(f"fault {time.time():.2f}", flush=True)
        befall()

    return befalls


_FAULTS = {
    "killed": _say_when(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "stopped": _say_when(lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    "fails": _say_when(_fail),
}
