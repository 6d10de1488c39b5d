"""Calls of `fit`, `evaluate` and `predict` in the forms that scripts have, on replicas or with plain Keras."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.contract import PlainKeras
from tests.training.models import LABELS, TARGETS, X, cross_entropy, mlp, regressing, sgd
from tfscale.training.call.call_data import _tell_batch_size

GLOBAL_BATCH = 24


def made(num_replicas: int, **options: Any) -> Any:
    """The `DataParallel` of so many replicas; 0 are plain Keras."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    if not num_replicas:
        return PlainKeras()
    tfscale.simulate_replicas(num_replicas)
    return tfscale.DataParallel(global_batch=GLOBAL_BATCH, **options)


class Hands(keras.Sequential):
    """Hands everything on."""

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        return super().predict(*args, **kwargs)


class Named(keras.Sequential):
    """Names what comes first, and an argument of its own."""

    def fit(self, x: Any, y: Any = None, *args: Any, tag: str = "", **kwargs: Any) -> Any:
        return super().fit(x, y, *args, **kwargs)


class Pair(keras.Sequential):
    """Makes its data only then."""

    def fit(self, data: Any, **kwargs: Any) -> Any:
        return super().fit(data[0], data[1], **kwargs)


def _compiled(dp: Any, kind: type[keras.Sequential] = keras.Sequential, **options: Any) -> keras.Model:
    with dp.scope():
        model = dp.prepare(kind(mlp().layers))
        model.compile(optimizer=sgd(**options), loss=cross_entropy())
    return model


CALLS: dict[str, Callable[[Any], Any]] = {
    "arrays": lambda dp: (Hands, (X, LABELS), {}),
    "positional batch size": lambda dp: (Hands, (X, LABELS, GLOBAL_BATCH, 2), {}),
    "own arguments": lambda dp: (Named, (X, LABELS), {"tag": "a"}),
    "own arguments, positional batch size": lambda dp: (Named, (X, LABELS, None), {}),
    "by name": lambda dp: (Hands, (), {"x": X, "y": LABELS}),
    "dp.dataset": lambda dp: (Hands, (dp.dataset((X, LABELS)),), {}),
    "own arguments, right batch": lambda dp: (Pair, ((X, LABELS),), {"batch_size": GLOBAL_BATCH}),
}


def called(num_replicas: int, name: str) -> dict[str, Any]:
    """Steps, weights, evaluation and predictions of a class with a `fit` of its own."""
    dp = made(num_replicas)
    kind, args, kwargs = CALLS[name](dp)
    model = _compiled(dp, kind)
    history = model.fit(*args, **kwargs, shuffle=False, verbose=0)
    return {
        "steps": int(model.optimizer.iterations.numpy()),
        "weights": model.get_weights(),
        "evaluate": model.evaluate(X, LABELS, verbose=0),
        "predict": model.predict(X, verbose=0).shape,
        "epochs": len(history.epoch),
    }


def reference(epochs: int) -> dict[str, Any]:
    """Weights of plain Keras after so many epochs."""
    model = _compiled(made(0))
    model.fit(X, LABELS, batch_size=GLOBAL_BATCH, epochs=epochs, shuffle=False, verbose=0)
    return {"weights": model.get_weights()}


def unseen_data(num_replicas: int) -> str:
    """A class whose `fit` makes arrays of an argument of its own, without a batch size."""
    try:
        _compiled(made(num_replicas), Pair).fit((X, LABELS), verbose=0)
    except tfscale.DataError as error:
        return str(error)
    return ""


def recovers(num_replicas: int) -> tuple[int, int]:
    """Epochs of a `fit(*args, **kwargs)` with `Recovery`, and of the same again for one epoch more."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        for epochs in (2, 3):
            dp = made(num_replicas)
            model = _compiled(dp, Hands)
            recovery = tfscale.callbacks.Recovery(directory)
            history = model.fit(dp.dataset((X, LABELS)), epochs=epochs, verbose=0, callbacks=[recovery])
            found.append((history.epoch, int(model.optimizer.iterations.numpy())))
    return found[0], found[1]


def accumulators_are_settled(num_replicas: int) -> list[list[np.ndarray]]:
    """The copies of each accumulated gradient after an epoch of a `fit(*args, **kwargs)`."""
    model = _compiled(made(num_replicas), Hands, gradient_accumulation_steps=4)
    model.fit(X, LABELS, shuffle=False, verbose=0)
    gradients = [each for each in model.optimizer.variables if "accumulator" in each.path]
    return [[np.array(copy) for copy in each.value.values] for each in gradients]


def watch_with_validation(num_replicas: int) -> tuple[list[bool], int]:
    """Whether `StallWatch` is at work in each epoch of a `fit` with validation, and how many threads are left."""
    model = _compiled(made(num_replicas))
    alive = []

    def look(epoch: int, logs: Any) -> None:
        alive.append(_watching() > 0)

    callbacks = [tfscale.callbacks.StallWatch(60), keras.callbacks.LambdaCallback(on_epoch_begin=look)]
    model.fit(X, LABELS, epochs=3, validation_data=(X, LABELS), verbose=0, callbacks=callbacks)
    return alive, _watching()


def watch_of_a_failed_fit(num_replicas: int) -> int:
    """How many threads of a `StallWatch` a `fit` leaves that fails."""
    model = _compiled(made(num_replicas))

    def fail(epoch: int, logs: Any) -> None:
        raise ValueError("on purpose")

    callbacks = [tfscale.callbacks.StallWatch(60), keras.callbacks.LambdaCallback(on_epoch_end=fail)]
    try:
        model.fit(X, LABELS, verbose=0, callbacks=callbacks)
    except ValueError:
        return _watching()
    return -1


def _watching() -> int:
    return sum("stall" in thread.name for thread in threading.enumerate())


class _Closes(keras.callbacks.Callback):
    """Somebody else's, whose `close` has nothing to do with `fit`."""

    closed = False

    def close(self) -> None:
        self.closed = True


def callback_with_a_close_of_its_own(num_replicas: int) -> bool:
    callback = _Closes()
    _compiled(made(num_replicas)).fit(X, LABELS, verbose=0, callbacks=callback)
    return callback.closed


def callback_list(num_replicas: int, recovery: bool) -> list[list[str]]:
    """The callbacks in a user's own list before each of three calls, and after them."""
    dp = made(num_replicas, network=tfscale.Network(double_buffering=not recovery))
    model = _compiled(dp)
    found = []
    with tempfile.TemporaryDirectory() as directory:
        more = [tfscale.callbacks.Recovery(directory)] if recovery else []
        callbacks = keras.callbacks.CallbackList(
            [keras.callbacks.TerminateOnNaN(), *more], add_history=True, model=model
        )
        for epochs in (1, 2, 3):
            found.append([type(each).__name__ for each in callbacks.callbacks])
            callbacks.set_params({"epochs": epochs})
            model.fit(dp.dataset((X, LABELS)), epochs=epochs, verbose=0, callbacks=callbacks)
        return [*found, [type(each).__name__ for each in callbacks.callbacks]]


def error_of_tensorflow(num_replicas: int) -> tuple[str, bool, str]:
    """An error in the pipeline that is not of the kind that tfscale explains: its type, and what caused it."""
    model = _compiled(made(num_replicas))

    def fail(x: Any, y: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_any(x > 1e9), ["on purpose"])]):
            return tf.identity(x), y

    data = tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(GLOBAL_BATCH).map(fail)
    try:
        model.fit(data, verbose=0)
    except tf.errors.InvalidArgumentError as error:
        return type(error).__name__, error.__cause__ is error, str(error)
    return "no error", False, ""


def distributed_by_the_user(num_replicas: int, how: str) -> dict[str, Any]:
    """`fit` on data that the script distributed itself, with validation data of another batch."""
    dp = made(num_replicas)
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(**regressing()())
    rows = tf.data.Dataset.from_tensor_slices((X[:240], TARGETS[:240]))
    validation, order = tf.data.Dataset.from_tensor_slices((X, TARGETS)).batch(7), {}
    if not num_replicas:
        data: Any = rows.batch(GLOBAL_BATCH).repeat()
        order = {"shuffle": False}
    elif how == "experimental_distribute_dataset":
        data = dp.strategy.experimental_distribute_dataset(rows.batch(GLOBAL_BATCH).repeat())
        validation = dp.strategy.experimental_distribute_dataset(validation)
    else:
        data = dp.strategy.distribute_datasets_from_function(
            lambda _: rows.batch(GLOBAL_BATCH // num_replicas).repeat()
        )
    history = model.fit(data, epochs=2, steps_per_epoch=10, validation_data=validation, verbose=0, **order)
    return {"weights": model.get_weights(), "history": history.history}


def batch_size_left_out(num_replicas: int) -> tuple[list[str], int]:
    """What the log says of calls of `fit` without a batch size, and of one with; in how many batches it evaluates."""
    _tell_batch_size.cache_clear()
    model = _compiled(made(num_replicas))
    seen: list[int] = []
    counting = keras.callbacks.LambdaCallback()
    counting.on_test_batch_end = lambda batch, logs=None: seen.append(batch)
    with _warnings_of("tfscale.training.call.call_data") as said:
        model.fit(X, LABELS, verbose=0)
        model.fit(X, LABELS, verbose=0)
        model.fit(X, LABELS, batch_size=GLOBAL_BATCH, verbose=0)
        model.evaluate(X, LABELS, verbose=0, callbacks=[counting])
    return said, len(seen)


def generator_again(num_replicas: int) -> list[list[str]]:
    """What the log says of calls with a generator: the first, one with another generator, one with the first again."""

    def batches() -> Any:
        while True:
            yield X[:GLOBAL_BATCH], LABELS[:GLOBAL_BATCH]

    model = _compiled(made(num_replicas))
    first, found = batches(), []
    for each in (first, batches(), first):
        with _warnings_of("tfscale.training.call.call_data") as said:
            model.fit(each, steps_per_epoch=2, shuffle=False, verbose=0)
        found.append(said)
    return found


@contextlib.contextmanager
def _warnings_of(name: str) -> Iterator[list[str]]:
    """What a part of tfscale says meanwhile."""
    said: list[str] = []

    class _Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler, log = _Handler(), logging.getLogger(name)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    try:
        yield said
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


class Shuffled(keras.utils.PyDataset):
    """A full batch and a small one, in the order in which Keras asks for them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        rows = slice(0, 24) if index == 0 else slice(24, 29)
        return X[rows], LABELS[rows]


def small_batch_in_any_place(num_replicas: int, kind: str) -> dict[str, Any]:
    """Six epochs of two batches of which the smaller one comes first now and then."""
    dp = made(num_replicas)
    model = _compiled(dp)
    rows: Any = Shuffled()
    if kind == "tf.data":
        rows = tf.data.Dataset.from_tensor_slices((X[:29], LABELS[:29])).batch(GLOBAL_BATCH).shuffle(2, seed=4)
        first = [len(next(iter(rows))[0]) for _ in range(6)]
        rows = tf.data.Dataset.from_tensor_slices((X[:29], LABELS[:29])).batch(GLOBAL_BATCH).shuffle(2, seed=4)
    history = model.fit(rows, epochs=6, verbose=0, **({"shuffle": False} if kind == "tf.data" else {}))
    if kind != "tf.data":
        first = [24 if index == 0 else 5 for index in rows.asked[-12::2]]
    return {"first": first, "weights": model.get_weights(), "loss": history.history["loss"]}
