"""Calls that fail or overlap, and what is left of them. Every function runs in its own process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

BATCH = 12
X = np.random.default_rng(0).normal(size=(4 * BATCH, 5)).astype("float32")
Y = X.sum(1, keepdims=True)


def _make(dp: Any, loss: Any = "mse") -> keras.Model:
    keras.utils.set_random_seed(1)
    with dp.scope():
        model = dp.prepare(
            keras.Sequential([keras.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]),
            check="off",
        )
        model.compile(keras.optimizers.SGD(0.05), loss)
    return model


def _fit(model: keras.Model, *callbacks: Any) -> float:
    return float(model.fit(X, Y, shuffle=False, verbose=0, callbacks=list(callbacks)).history["loss"][-1])


def _start(num_replicas: int) -> Any:
    tfscale.simulate_replicas(num_replicas)
    return tfscale.DataParallel(global_batch=BATCH, seed=1)


class _Once(keras.callbacks.Callback):
    def __init__(self, act: Callable[[keras.Model], Any]):
        super().__init__()
        self._act: Callable[[keras.Model], Any] | None = act

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        if batch == 1 and self._act is not None:
            act, self._act = self._act, None
            act(self.model)


def _raise(error: BaseException) -> Callable[[Any], None]:
    def act(_: Any) -> None:
        raise error

    return act


def _of_bad_data(model: keras.Model) -> None:
    def batches() -> Any:
        yield X[:BATCH], Y[:BATCH]
        raise ValueError("the data broke")

    signature = (tf.TensorSpec((BATCH, 5)), tf.TensorSpec((BATCH, 1)))
    model.fit(tf.data.Dataset.from_generator(batches, output_signature=signature), verbose=0)


def _of_one_replica(dp: Any) -> None:
    def loss(y: Any, predicted: Any) -> Any:
        tf.debugging.assert_less(tf.reduce_max(y), 1e9)
        return tf.reduce_mean((y - predicted) ** 2, axis=-1)

    wrong = np.concatenate([Y[: BATCH - 1], Y[:1] + 1e12])
    _make(dp, loss).fit(X[:BATCH], wrong, verbose=0)


def again(num_replicas: int) -> dict[str, Any]:
    """A first `fit` of one epoch after each way in which another one has failed, and of which error that was."""
    dp = _start(num_replicas)
    found: dict[str, Any] = {"never failed": ("", _fit(_make(dp)))}
    failing: dict[str, Callable[[], Any]] = {
        "callback": lambda: _fit(_make(dp), _Once(_raise(ValueError("on purpose")))),
        "exit": lambda: _fit(_make(dp), _Once(_raise(SystemExit(3)))),
        "Ctrl-C": lambda: _fit(_make(dp), _Once(lambda _: signal.raise_signal(signal.SIGINT))),
        "data": lambda: _of_bad_data(_make(dp)),
        "one replica": lambda: _of_one_replica(dp),
        "memory": lambda: _fit(_make(dp, _too_much)),
    }
    for name, fail in failing.items():
        error = "no error"
        try:
            fail()
        except BaseException as raised:
            error = type(raised).__name__
        found[name] = (error, _fit(_make(dp)))
    return found


def inside(num_replicas: int) -> dict[str, Any]:
    """What calls inside of a callback of `fit` give, and the `fit` around them."""
    dp = _start(num_replicas)
    inner: list[Any] = []
    outer = {
        "another model": _fit(_make(dp), _Once(lambda _: inner.append(_fit(_make(dp))))),
        # Keras's metrics begin anew with it, also those of the `fit` around it.
        "evaluate": _fit(_make(dp), _Once(lambda model: inner.append(model.evaluate(X, Y, verbose=0)))),
        "predict": _fit(_make(dp), _Once(lambda model: inner.append(len(model.predict(X, verbose=0))))),
        "alone": _fit(_make(dp)),
    }
    return {"outer": outer, "inner": inner}


class _TrainsByItself(keras.Model):
    """Makes its weights in a `train_on_batch` of its own, outside of the scope."""

    def __init__(self) -> None:
        super().__init__()
        self.net = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.net(x)

    def train_on_batch(self, x: Any, y: Any = None, **kwargs: Any) -> float:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x)))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return float(loss)


def trains_by_itself(num_replicas: int, is_built: bool) -> tuple[str, int]:
    """What is said of it, and how many updates it has made."""
    dp = _start(num_replicas)
    with dp.scope():
        model = dp.prepare(_TrainsByItself())
        model.compile(keras.optimizers.SGD(0.1))
        if is_built:
            model(tf.ones((1, 8)))
    try:
        model.train_on_batch(tf.ones((4, 8)), tf.ones((4, 1)))
        said = "no error"
    except tfscale.TfscaleError as error:
        said = f"{type(error).__name__}: {error}"
    return said, int(model.optimizer.iterations)


def in_two_threads(num_replicas: int) -> dict[str, Any]:
    """What a second thread's calls get while a first one trains, and when it has ended."""
    dp = _start(num_replicas)
    first, second = _make(dp), _make(dp)
    expected = _fit(_make(dp))
    said: dict[str, str] = {}

    def call(name: str, function: Callable[[], Any]) -> None:
        try:
            said[name] = f"no error: {function():.4f}"
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"

    def run(name: str, function: Callable[[], Any]) -> None:
        thread = threading.Thread(target=call, args=(name, function), name="another one")
        thread.start()
        thread.join(60)

    def meanwhile(_: Any) -> None:
        run("fit", lambda: _fit(second))
        run("evaluate", lambda: second.evaluate(X, Y, verbose=0))

    ended = _fit(first, _Once(meanwhile))
    run("afterwards", lambda: _fit(second))
    return {"expected": expected, "ended": ended, "said": said}


def _too_much(y: Any, predicted: Any) -> Any:
    # Never true; but TensorFlow would make a constant of what it knows before.
    unknown = tf.cast(tf.reduce_max(tf.abs(predicted)) < -1, tf.int64)
    big = tf.fill([unknown + (1 << 24), 1 << 24], 1.0)
    return tf.reduce_mean((y - predicted) ** 2, axis=-1) + 0 * tf.reduce_sum(big)


def of_memory(num_replicas: int) -> dict[str, str]:
    """What is said where TensorFlow, or NumPy in a callback, has not enough memory; and of what is no memory."""
    dp = _start(num_replicas)
    found = {}
    wrong: dict[str, Callable[[], Any]] = {
        "TensorFlow": lambda: _fit(_make(dp, _too_much)),
        "NumPy": lambda: _fit(_make(dp), _Once(lambda _: np.ones((1 << 24, 1 << 24)))),
        "a quota": lambda: _fit(
            _make(dp), _Once(_raise(tf.errors.ResourceExhaustedError(None, None, "Quota of requests exceeded")))
        ),
        "a GPU": lambda: _fit(_make(dp), _Once(_raise(tf.errors.ResourceExhaustedError(None, None, _OF_GPU)))),
    }
    for name, call in wrong.items():
        try:
            call()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


_OF_GPU = (
    "Graph execution error:\n\nDetected at node adam/mul defined at (most recent call last):\n  a long trace\n"
    "OOM when allocating tensor with shape[16384,32768] and type float on "
    "/job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc\n\t [[{{node adam/mul}}]]"
)


def cells(num_replicas: int) -> dict[str, tuple[str, str]]:
    """A notebook's cells in another order: what each order gives, and what the plain one does."""
    dp = _start(num_replicas)

    def said(call: Callable[[], float]) -> str:
        try:
            return f"{call():.5f}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def evaluated_first() -> float:
        model = _make(dp)
        model.evaluate(X, Y, verbose=0)
        model.predict(X, verbose=0)
        return _fit(model)

    def made_twice() -> float:
        """The cell of `DataParallel` is run again, behind that of the model."""
        model = _make(dp)
        again = tfscale.DataParallel(global_batch=BATCH, seed=1)
        again.prepare(model, check="off")
        return _fit(model)

    def with_another_batch(*, is_trained: bool) -> float:
        model = _make(dp)
        if is_trained:
            _fit(model)
        other = tfscale.DataParallel(global_batch=2 * BATCH)
        other.prepare(model, check="off")
        return _fit(model)

    def back_again() -> float:
        model = _make(dp)
        tfscale.DataParallel(global_batch=2 * BATCH).prepare(model, check="off")
        dp.prepare(model, check="off")
        return _fit(model)

    def of_one_device() -> float:
        model = _make(dp)
        tfscale.DataParallel(global_batch=BATCH, devices=1).prepare(model)
        return _fit(model)

    def fit_of_itself() -> float:
        """In a callback of its `fit` the same model is trained once more; two epochs in a row take as many steps."""
        model = _make(dp)
        _fit(model, _Once(lambda inner: _fit(inner)))
        return float(model.optimizer.iterations.numpy())

    def compiled_between() -> float:
        model = _make(dp)
        _fit(model)
        with dp.scope():
            model.compile(keras.optimizers.SGD(0.05), "mse")
        return _fit(model)

    def twice() -> float:
        model = _make(dp)
        _fit(model)
        return _fit(model)

    def plain_with_another_batch(*, is_trained: bool) -> float:
        model = _make(dp)
        if is_trained:
            _fit(model)
        other = tfscale.DataParallel(global_batch=2 * BATCH)
        with other.scope():
            new = other.prepare(
                keras.Sequential([keras.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]),
                check="off",
            )
            new.compile(keras.optimizers.SGD(0.05), "mse")
        new.set_weights(model.get_weights())
        return _fit(new)

    def plain() -> float:
        return _fit(_make(dp))

    orders: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
        "evaluate before fit": (evaluated_first, plain),
        "DataParallel again": (made_twice, plain),
        "another batch": (
            lambda: with_another_batch(is_trained=False),
            lambda: plain_with_another_batch(is_trained=False),
        ),
        "another batch after fit": (
            lambda: with_another_batch(is_trained=True),
            lambda: plain_with_another_batch(is_trained=True),
        ),
        "another batch and back": (back_again, plain),
        "one device": (of_one_device, plain),
        "fit of itself": (fit_of_itself, lambda: 2.0 * len(X) / BATCH),
        "compile between": (compiled_between, twice),
    }
    return {name: (said(found), said(expected)) for name, (found, expected) in orders.items()}
