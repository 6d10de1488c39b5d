"""`fit` that chooses its steps per call; runs in a process of its own."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import keras
import numpy as np

import tfscale
from tfscale.replicas.progress import watch_progress
from tfscale.replicas.replica_batch import local_replicas
from tfscale.training.call import steps_per_call, traced


class Traced(keras.layers.Layer):
    """Counts how often it is traced for training."""

    traces = 0

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            type(self).traces += 1
        return inputs


class Calls(keras.callbacks.Callback):
    """Notes the first and the last step of each call, by epoch, and keeps a clock on which calls and steps take as long
    as said: how the calls grow must not depend on the machine."""

    HOST_S, STEP_S = 0.0005, 0.0001

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.epochs: list[list[tuple[int, int]]] = []
        self.traces: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append([])

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.epochs[-1].append((self._begin, batch))
        self.now_s += self.HOST_S + (batch - self._begin + 1) * self.STEP_S
        self.traces.append(Traced.traces)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.now_s += self.HOST_S


def calls(num_replicas: int) -> dict[str, Any]:
    """What `fit` did, by question."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=8, steps_per_execution="always")
    x = np.random.default_rng(0).normal(size=(8 * 301, 3)).astype("float32")
    y = x.sum(axis=1, keepdims=True)

    def compiled(prepared: Any = dp, **arguments: Any) -> keras.Model:
        with dp.scope():
            model = prepared.prepare(keras.Sequential([keras.Input((3,)), Traced(), keras.layers.Dense(1)]))
            model.compile("sgd", "mse", **arguments)
        return model

    noted = Calls()
    clocked = functools.partial(steps_per_call.StepsPerCall, clock=lambda: noted.now_s)

    def fit(model: keras.Model, **arguments: Any) -> list[list[tuple[int, int]]]:
        noted.epochs.clear()
        with mock.patch.object(steps_per_call, "StepsPerCall", clocked):
            model.fit(x, y, verbose=0, callbacks=[noted], **arguments)
        return list(noted.epochs)

    model = compiled()
    found: dict[str, Any] = {"num_steps": 301, "epochs": fit(model, epochs=3, validation_data=(x[:80], y[:80]))}
    found["traces"] = noted.traces[0], noted.traces[-1]
    before = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
    fit(model, epochs=1, steps_per_epoch=50)
    found["iterations of 50 steps"] = int(keras.ops.convert_to_numpy(model.optimizer.iterations)) - before
    found["compiled with 4"] = fit(compiled(steps_per_execution=4), steps_per_epoch=12)[0]
    without = tfscale.DataParallel(global_batch=8, devices=dp.strategy, steps_per_execution=None)
    found["without"] = fit(compiled(without), steps_per_epoch=5)[0]
    found["files"] = {"steps_per_execution": model.get_compile_config()["steps_per_execution"]}
    return found


def reductions(num_replicas: int) -> dict[str, int]:
    """How many reductions eight steps take, by what is done and the steps of a call."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=8)
    network = tfscale.Network(double_buffering=True)
    buffered = tfscale.DataParallel(global_batch=8, devices=dp.strategy, network=network)
    x = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    found = {}
    for name, prepared, every in (("plain", dp, None), ("accumulation", dp, 4), ("double buffering", buffered, None)):
        for steps in (1, 4):
            with dp.scope():
                model = prepared.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
                optimizer = keras.optimizers.SGD(gradient_accumulation_steps=every)
                model.compile(optimizer, "mse", steps_per_execution=steps)
            progress, _ = watch_progress(model, local_replicas(dp.strategy))
            model.fit(x, y, verbose=0)
            begun, ended = progress.read()
            assert begun == ended
            found[f"{name}, {steps}"] = begun
            model.evaluate(x, y, batch_size=8, verbose=0)
            found[f"{name}, evaluate, {steps}"] = progress.read()[0] - begun
    return found


class OwnStep(keras.Model):
    """Its step is not Keras's own."""

    def train_step(self, data: Any) -> dict[str, Any]:
        return super().train_step(data)


class OwnFit(keras.Model):
    """May give Keras's `fit` any callbacks."""

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        return super().fit(*args, **kwargs)


class Reads(keras.callbacks.Callback):
    """Looks at single batches."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads nothing of it."""


def unasked(num_replicas: int, directory: str) -> dict[str, Any]:
    """How many calls `fit` makes at the defaults, by what is given to it."""
    tfscale.simulate_replicas(num_replicas)
    strategy = tfscale.DataParallel(global_batch=8).strategy
    num_steps = 2000
    x = np.random.default_rng(0).normal(size=(4 * num_steps, 3)).astype("float32")
    y = x.sum(axis=1, keepdims=True)

    def run(
        kind: type = keras.Model,
        fit: Any = None,
        compiled: Any = None,
        steps: int = num_steps,
        can_trace: bool = True,
        pays: bool = True,
        **given: Any,
    ) -> dict[str, Any]:
        dp = tfscale.DataParallel(global_batch=8, devices=strategy, **given)
        with dp.scope():
            inputs = keras.Input((3,))
            model = dp.prepare(kind(inputs, keras.layers.Dense(1, kernel_initializer="zeros")(inputs)), check="off")
            model.compile(keras.optimizers.SGD(0.01), "mse", **(compiled or {}))
        calls, make = [], model.make_train_function

        def counted(force: bool = False) -> Any:
            function = make(force)
            if not getattr(function, "counts", False):

                def call(iterator: Any) -> Any:
                    calls.append(1)
                    return function(iterator)

                call.counts = True
                model.train_function = call
            return model.train_function

        model.make_train_function = counted
        rows = 8 * min(steps, num_steps // 2)
        with (
            mock.patch.object(steps_per_call, "pays_to_join", return_value=pays),
            mock.patch.object(traced.Traced, "can_trace", return_value=can_trace),
        ):
            history = model.fit(x[:rows], y[:rows], epochs=8 * steps // rows, verbose=0, shuffle=False, **(fit or {}))
        return {
            "calls": len(calls),
            "steps": steps,
            "said": str(dp),
            "loss": history.history["loss"],
            "weights": [float(each) for each in np.concatenate([each.ravel() for each in model.get_weights()])],
            "iterations": int(keras.ops.convert_to_numpy(model.optimizer.iterations)),
        }

    watched = tfscale.DataParallel(global_batch=8, devices=strategy)
    return {
        "num_steps": num_steps,
        "nobody reads": run(fit={"callbacks": [keras.callbacks.EarlyStopping("loss", patience=9)]}),
        "off": run(steps_per_execution=None),
        "one": run(steps=40, steps_per_execution=1),
        "reads batches": run(steps=40, fit={"callbacks": [Reads()]}),
        "own step": run(OwnStep, steps=40),
        "own fit": run(OwnFit, steps=40),
        "eager": run(steps=10, compiled={"run_eagerly": True}),
        "short": run(steps=40, pays=False),
        "dp.callbacks": run(fit={"callbacks": watched.callbacks(directory)}),
        "compiled with 4": run(steps=40, compiled={"steps_per_execution": 4}),
        "cannot": run(can_trace=False),
    }


def unasked_on_workers() -> dict[str, int]:
    """Calls of a worker where all could take several steps, and where the chief has a callback that reads batches."""
    dp = tfscale.DataParallel(global_batch=8)
    x = np.random.default_rng(0).normal(size=(8 * 200, 3)).astype("float32")
    found = {}
    for what in ("nobody reads", "the chief reads"):
        with dp.scope():
            model = dp.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
            model.compile("sgd", "mse")
        given = [Reads()] if what == "the chief reads" and dp.is_chief else []
        with mock.patch.object(steps_per_call, "pays_to_join", return_value=True):
            model.fit(x, x.sum(axis=1, keepdims=True), epochs=2, verbose=0, callbacks=given)
        found[what] = steps_per_call.MOST_STEPS.of(model, 1)
    return found
