"""What becomes of the callbacks that a call of `fit` was given, and what is left of it when the call ends?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras


class ClosedByFit(keras.callbacks.Callback):
    """A callback that holds something, such as a thread, which must end with `fit`, also with one that fails.

    A class of its own, and not whatever has a method `close`: a user's callback may have one that means another thing.
    """

    def close(self) -> None:
        """Ends what `on_train_end` would have ended. Called when a prepared model's `fit` ends; may be called twice."""
        raise NotImplementedError


def listed(callbacks: Any) -> list[Any]:
    """The callbacks that `fit` was given as one, several, a `CallbackList` or none."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return [each for each in keras.tree.flatten(callbacks) if each is not None]


def with_callback(callbacks: Any, added: keras.callbacks.Callback, *, first: bool) -> Any:
    """What `fit` takes as callbacks, with one more."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks.insert(0 if first else len(callbacks.callbacks), added)
        return callbacks
    return [added, *listed(callbacks)] if first else [*listed(callbacks), added]


@contextlib.contextmanager
def callbacks_of_one_fit(find: Callable[[], Any]) -> Iterator[None]:
    """Closes callbacks when a `fit` ends, and takes out of a user's `CallbackList` what was put in for that call.

    Args:
        find: Returns the callbacks as `fit` is to get them.
    """
    before = listed(find())
    try:
        yield
    finally:
        callbacks = find()
        for callback in listed(callbacks):
            if isinstance(callback, ClosedByFit):
                callback.close()
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.callbacks[:] = before
