"""Ctrl-C at some moment of a call, and what its process does afterwards. Every function runs in its own process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.cross_device_utils import CollectiveKeys
from tensorflow.python.ops import gen_resource_variable_ops

import tfscale
from tfscale.recovery import files, folder
from tfscale.recovery.variables import RunVariables
from tfscale.replicas.made import made_under
from tfscale.training.step import state

BATCH, EPOCHS = 12, 3
X = np.random.default_rng(0).normal(size=(4 * BATCH + 5, 5)).astype("float32")
Y = X.sum(1, keepdims=True)


def at_moments(num_replicas: int, count: int) -> dict[str, Any]:
    """Interrupts `count` runs, spread over the time that one takes; after each, trains the same model and new ones."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    # What is imported and made once comes with the first.
    _fit(_make_looked_at(dp))
    start_s = time.monotonic()
    model = _make_looked_at(dp)
    expected = _fit(model), model.get_weights()
    whole_s = time.monotonic() - start_s
    found = [_interrupt(dp, whole_s * (index + 0.5) / count) for index in range(count)]
    return {"expected": expected, "found": found}


def _interrupt(dp: tfscale.DataParallel, delay_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        model, saving = _make_looked_at(dp), _make_looked_at(dp)
        error = _interrupted_after(model, delay_s, [])
        is_alike = _is_alike(dp)
        after = _said(lambda: _fit(model, epochs=1))
        _interrupted_after(saving, delay_s, dp.callbacks(directory))
        resumed = _make_looked_at(dp)
        try:
            loss = _fit(resumed, dp.callbacks(directory))
        except tfscale.RecoveryError as refused:
            # It came after the last step: there is nothing to go on with.
            if f"has made its {EPOCHS} epochs" not in str(refused):
                raise
            resumed, loss = saving, saving.history.history["loss"][-1]
        new = _make_looked_at(dp)
        return {
            "error": error,
            "is alike": is_alike,
            "after": after,
            "resumed": (loss, resumed.get_weights()),
            "new": (_fit(new), new.get_weights()),
        }


def _interrupted_after(model: keras.Model, delay_s: float, callbacks: list[Any]) -> str:
    timer = threading.Timer(delay_s, os.kill, args=(os.getpid(), signal.SIGINT))
    try:
        timer.start()
        _fit(model, callbacks)
        timer.join()
        # For the signal to be heard, where it came too late.
        time.sleep(1)
    except KeyboardInterrupt as error:
        return type(error).__name__
    finally:
        timer.join()
    return ""


def at_keys_of_a_loop(num_replicas: int) -> dict[str, tuple[str, float]]:
    """Interrupts a loop by hand where some replicas have the key of their next collective: what its next call gives."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)

    def summed(ones: Any) -> Any:
        context: Any = tf.distribute.get_replica_context()
        total = context.all_reduce("SUM", ones)
        return context.all_reduce("SUM", total + 1.0)

    @tf.function
    def one_call(ones: Any) -> Any:
        return dp.strategy.run(summed, args=(ones,))

    @tf.function
    def call_of_calls(ones: Any) -> Any:
        return one_call(ones), one_call(ones)

    def eager(ones: Any) -> Any:
        return dp.strategy.run(summed, args=(ones,))

    found, ones = {}, tf.ones(())
    for name, function in {"function": one_call, "function of functions": call_of_calls, "eager": eager}.items():
        for turn in range(1, 2 * num_replicas + 1):
            error = ""
            try:
                with _raising(CollectiveKeys, "get_instance_key", turn):
                    function(ones)
            except BaseException as raised:
                error = type(raised).__name__
            results = [dp.strategy.experimental_local_results(each) for each in tf.nest.flatten(function(ones))]
            found[f"{name}, {turn}"] = error, sorted({float(each) for every in results for each in every})
    return found


def at_places(num_replicas: int) -> dict[str, Any]:
    """Interrupts a call at each of some places: what it raises, what is left, and what calls after it give."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    expected = _fit(_make(dp))
    return {name: _at_place(dp, *place) for name, place in _places().items()} | {"trains": (_fit(_make(dp)), expected)}


def _at_place(dp: Any, make: Callable[[Any], Any], interrupt: Callable[[keras.Model], None]) -> dict[str, Any]:
    threads = set(threading.enumerate())
    model, error = make(dp), ""
    before = model.get_weights()
    try:
        interrupt(model)
    except BaseException as raised:
        error = type(raised).__name__
    found = {
        "error": error,
        "is alike": _is_alike(dp),
        "is as before": len(before) == len(model.get_weights())
        and all(map(np.array_equal, before, model.get_weights())),
        "after": _said(lambda: _fit(model, epochs=1)),
        "threads": [each.name for each in set(threading.enumerate()) - threads],
        "handler": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    }
    if found["after"].startswith("ModelError"):
        model.compile("adam", "mse")
        found["compiled anew"] = _said(lambda: _fit(model, epochs=1))
    return found


def _places() -> dict[str, tuple[Callable[[Any], keras.Model], Callable[[keras.Model], None]]]:
    def patched(owner: Any, name: str, turn: int, *callbacks: Any) -> Callable[[keras.Model], None]:
        def interrupt(model: keras.Model) -> None:
            with _raising(owner, name, turn):
                _fit(model, *callbacks)

        return interrupt

    def calling(hook: str, call: Callable[..., Any]) -> Callable[[keras.Model], None]:
        def interrupt(model: keras.Model) -> None:
            callback = keras.callbacks.LambdaCallback()
            setattr(callback, hook, lambda *_, **__: signal.raise_signal(signal.SIGINT))
            call(model, [callback])

        return interrupt

    def saving(owner: Any, name: str, turn: int) -> Callable[[keras.Model], None]:
        def interrupt(model: keras.Model) -> None:
            with tempfile.TemporaryDirectory() as directory, mock.patch.object(files, "_log") as log:
                recovery = tfscale.callbacks.Recovery(directory, every_steps=2)
                try:
                    with _raising(owner, name, turn):
                        _fit(model, [recovery])
                finally:
                    # From now on the directory may be another one's.
                    shutil.rmtree(directory)
                    os.mkdir(directory)
                    time.sleep(0.5)
                    if log.error.called:
                        raise ValueError(f"{log.error.call_args}")

        return interrupt

    evaluate = lambda model, callbacks: model.evaluate(X, Y, verbose=0, callbacks=callbacks)  # noqa: E731
    predict = lambda model, callbacks: model.predict(X, verbose=0, callbacks=callbacks)  # noqa: E731
    return {
        "optimizer's build": (_make, patched(keras.optimizers.Adam, "add_optimizer_variables", 1)),
        "layer's build": (_make_unbuilt, patched(OwnLayer, "add_bias", 1)),
        "rehearsal": (_make_own, patched(OwnStep, "compute_loss", 1)),
        "look, traced": (_make_own_looked_at, patched(OwnStep, "compute_loss", 2)),
        "look": (_make_looked_at, patched(state.State, "read", 2)),
        "look, put back": (_make_looked_at, patched(state, "_set", 40)),
        "step, traced": (_make_own, patched(OwnStep, "compute_loss", 2)),
        "eager step": (_make_eager, patched(keras.optimizers.Adam, "update_step", 21)),
        "train begins": (_make, calling("on_train_begin", _fit)),
        "keys": (_make, patched(CollectiveKeys, "get_instance_key", 1)),
        "keys, looked at": (_make_looked_at, patched(CollectiveKeys, "get_instance_key", 3)),
        "assignment": (_make, _in_assignment),
        "batch ends": (_make, calling("on_train_batch_end", _fit)),
        "epoch ends": (_make, calling("on_epoch_end", _fit)),
        "train ends": (_make, calling("on_train_end", _fit)),
        "evaluate": (_make, calling("on_test_batch_end", evaluate)),
        "predict": (_make, calling("on_predict_batch_end", predict)),
        "data": (_make, _in_data),
        "save, values read": (_make, saving(RunVariables, "read", 2)),
        "save, written": (_make, saving(folder, "_flush", 2)),
    }


@contextlib.contextmanager
def _raising(owner: Any, name: str, turn: int) -> Iterator[None]:
    """Ctrl-C when this is called for the `turn`-th time."""
    function, left = getattr(owner, name), [turn]

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGINT)
            # For the main thread to hear it.
            time.sleep(0.2)
        return result

    with mock.patch.object(owner, name, call), mock.patch.object(sys, "unraisablehook", _press_again):
        yield
    if left[0] > 0:
        raise ValueError(f"{name} was called {turn - left[0]} times")


def _press_again(ignored: Any) -> None:
    """As a user does whose Ctrl-C came in the midst of a `__del__`: Python ignores what that raises."""
    if isinstance(ignored.exc_value, KeyboardInterrupt):
        # Not at once: what this raises would be ignored as well.
        threading.Timer(0.05, os.kill, args=(os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(ignored)


def _in_assignment(model: keras.Model) -> None:
    def assign(*_: Any) -> None:
        with _raising(gen_resource_variable_ops, "assign_variable_op", 1):
            model.optimizer.learning_rate.assign(0.01)

    _fit(model, [keras.callbacks.LambdaCallback(on_epoch_end=assign)])


def _in_data(model: keras.Model) -> None:
    left = [2]

    def batches() -> Any:
        for start in range(0, len(X) - BATCH, BATCH):
            left[0] -= 1
            # Once: what reads ahead goes on for a while.
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGINT)
            yield X[start : start + BATCH], Y[start : start + BATCH]

    signature = (tf.TensorSpec((BATCH, 5)), tf.TensorSpec((BATCH, 1)))
    model.fit(tf.data.Dataset.from_generator(batches, output_signature=signature), epochs=EPOCHS, verbose=0)


class OwnLayer(keras.layers.Layer):
    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight(shape=(input_shape[-1], 4), name="kernel")
        self.add_bias()

    def add_bias(self) -> None:
        self.bias = self.add_weight(shape=(4,), name="bias")

    def call(self, x: Any) -> Any:
        return keras.ops.tanh(x @ self.kernel + self.bias)


class OwnStep(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.metrics[0].update_state(loss)
        return {"loss": loss}

    def compute_loss(self, *args: Any, **given: Any) -> Any:
        return super().compute_loss(*args, **given)


def _is_alike(dp: Any) -> bool:
    """Whether all replicas have every variable alike, but for what each counts by itself."""
    variables = [each for each in made_under(dp.strategy).variables if not state.is_counted(each)]
    copies = [[copy.numpy() for copy in dp.strategy.experimental_local_results(each)] for each in variables]
    return all(np.array_equal(first, other) for first, *others in copies for other in others)


def _said(call: Callable[[], Any]) -> str:
    try:
        return f"no error: {call():.6f}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _make_eager(dp: Any) -> keras.Model:
    return _make(dp, run_eagerly=True)


def _make_own(dp: Any) -> keras.Model:
    return _make(dp, OwnStep)


def _make_looked_at(dp: Any) -> keras.Model:
    return _make(dp, check="always")


def _make_own_looked_at(dp: Any) -> keras.Model:
    return _make(dp, OwnStep, check="always")


def _make_unbuilt(dp: Any) -> keras.Model:
    return _make(dp, lambda layers: keras.Sequential([OwnLayer(), *layers[2:]]))


def _make(dp: Any, kind: Any = keras.Sequential, check: str = "off", **options: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    with dp.scope():
        layers = [keras.layers.Dense(4, activation="tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        model = dp.prepare(kind([keras.Input((5,)), *layers]), check=check)
        model.compile(keras.optimizers.Adam(0.05), "mse", **options)
    return model


def _fit(model: keras.Model, callbacks: Any = (), epochs: int = EPOCHS) -> float:
    options = {"epochs": epochs, "batch_size": BATCH, "shuffle": False, "verbose": 0}
    return float(model.fit(X, Y, callbacks=list(callbacks), **options).history["loss"][-1])
