"""Who calls a callback that writes files, when several workers run the same script?"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import CallbackError, RecoveryError
from tfscale.recovery.one_call import listed
from tfscale.replicas.lone_replica import LoneReplica
from tfscale.replicas.replica_batch import local_replicas

_WRITE_FILES = (
    keras.callbacks.CSVLogger,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)


class ChiefOnly(keras.callbacks.Callback):
    """Calls another callback on the chief alone; for those that write files, or tell somebody.

    The others do nothing in its place. On the chief, what it reads is this worker's own copy, so that it never waits
    for workers that have not been asked: saving the model does not deadlock, even one that holds metrics of its own,
    whose states only all workers together can add up (in the file they are the chief's).

    It must not call `evaluate`, `predict` or `fit`, which all workers have to do together, nor change the model.

    Args:
        inner: The callback.

    Raises:
        CallbackError: When it is no callback.
        RecoveryError: When it restores what only all workers can, as `BackupAndRestore`.

    Example:
        >>> import keras, numpy as np, tfscale
        >>> dp = tfscale.DataParallel(global_batch=2, devices=1)
        >>> with dp.scope():
        ...     model = dp.prepare(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
        ...     model.compile("sgd", "mse")
        >>> show = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print("epoch", epoch))
        >>> callbacks = [tfscale.callbacks.ChiefOnly(show)]
        >>> history = model.fit(np.ones((2, 1)), np.ones(2), verbose=0, callbacks=callbacks)
        epoch 0
    """

    def __init__(self, inner: keras.callbacks.Callback):
        super().__init__()
        if not isinstance(inner, keras.callbacks.Callback):
            raise CallbackError(
                f"`ChiefOnly` takes a Keras callback.\nReceived: {inner!r} of type {type(inner).__name__}."
            )
        if isinstance(inner, keras.callbacks.BackupAndRestore):
            raise RecoveryError(
                "A callback that restores weights must do so on every worker.\n"
                "Received: BackupAndRestore. Use `tfscale.callbacks.Recovery`, which `dp.callbacks(directory)` "
                "returns."
            )
        self.inner = inner
        # Keras runs the hooks of a batch in a thread of their own where all callbacks allow it.
        self.async_safe = getattr(inner, "async_safe", False)

    def set_model(self, model: keras.Model) -> None:
        """Passes the model on."""
        super().set_model(model)
        if _is_chief(model):
            self.inner.set_model(model)

    def set_params(self, params: Any) -> None:
        """Passes on what `fit` was called with."""
        super().set_params(params)
        self.inner.set_params(params)

    def _call(self, name: str, *args: Any) -> None:
        if _is_chief(self.model):
            with _alone(self.model.distribute_strategy):
                getattr(self.inner, name)(*args)


def _passing_on(name: str) -> Callable[..., None]:
    def hook(self: ChiefOnly, *args: Any, **kwargs: Any) -> None:
        self._call(name, *args, *kwargs.values())

    hook.__name__ = name
    hook.__doc__ = f"Calls the inner callback's `{name}`, on the chief."
    return hook


# Keras asks each class which of these it defines itself; one by one they would be 17 times the same two lines.
for _when in ("begin", "end"):
    for _what in ("", "train_", "test_", "predict_"):
        setattr(ChiefOnly, f"on_{_what}batch_{_when}", _passing_on(f"on_{_what}batch_{_when}"))
    for _what in ("epoch", "train", "test", "predict"):
        setattr(ChiefOnly, f"on_{_what}_{_when}", _passing_on(f"on_{_what}_{_when}"))


def inner_callback(callback: keras.callbacks.Callback) -> keras.callbacks.Callback:
    """Returns the callback that does the work."""
    return callback.inner if isinstance(callback, ChiefOnly) else callback


def write_on_chief_only(
    callbacks: Iterable[keras.callbacks.Callback], strategy: tf.distribute.Strategy
) -> list[keras.callbacks.Callback]:
    """Wraps Keras's callbacks that write files, where there are several workers.

    Raises:
        RecoveryError: For `BackupAndRestore` on several workers, all of which would write to the same files.
    """
    if not local_replicas(strategy).on_several_workers:
        return list(callbacks)
    needs_chief = (*_WRITE_FILES, keras.callbacks.BackupAndRestore)
    return [ChiefOnly(each) if isinstance(each, needs_chief) else each for each in callbacks]


def warn_of_writers(callbacks: Any, strategy: tf.distribute.Strategy) -> None:
    """Warns of Keras's callbacks with which several workers would write the same files.

    Args:
        callbacks: As `fit` was given them.
        strategy: Of the job.
    """
    writing = (*_WRITE_FILES, keras.callbacks.BackupAndRestore)
    names = sorted({type(each).__name__ for each in listed(callbacks) if isinstance(each, writing)})
    if names and local_replicas(strategy).on_several_workers:
        warnings.warn(
            f"Every worker has a {' and a '.join(names)} of its own: where they are given the same path, all write to "
            "one file. Give `fit` `callbacks=dp.callbacks([...])`, with which the chief alone writes; to go on where a "
            "run ended, `dp.callbacks(directory)`.",
            stacklevel=2,
        )


def _is_chief(model: keras.Model) -> bool:
    return local_replicas(model.distribute_strategy).first == 0


def _alone(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager[Any]:
    """Where reading a variable gives the copy of this worker's first replica, and asks nobody."""
    if not local_replicas(strategy).on_several_workers:
        return contextlib.nullcontext()
    return LoneReplica(strategy)
