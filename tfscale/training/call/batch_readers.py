"""Which callbacks read single batches, so that a call of several steps would be another thing to them?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras

from tfscale.framework.fit import profiled_batches
from tfscale.recovery.chief_only import inner_callback
from tfscale.recovery.one_call import listed

# Says of a callback that it takes a call of several steps for what it is, as Keras's `async_safe` says another thing.
SAFE = "several_steps_safe"
_HOOKS = {
    "fit": ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end"),
    "evaluate": ("on_test_batch_begin", "on_test_batch_end"),
}


def _every_few_batches(callback: Any) -> bool:
    return bool(callback.save_freq != "epoch")


def _writes_or_profiles_batches(callback: Any) -> bool:
    return bool(callback.update_freq != "epoch" or any(profiled_batches(callback)))


# Of Keras's own those that need not, though they have hooks; all others with hooks do.
_KERAS: dict[type, Callable[[Any], bool]] = {
    keras.callbacks.ProgbarLogger: lambda _: False,
    keras.callbacks.ModelCheckpoint: _every_few_batches,
    keras.callbacks.BackupAndRestore: _every_few_batches,
    keras.callbacks.TensorBoard: _writes_or_profiles_batches,
}
if hasattr(keras.callbacks, "OrbaxCheckpoint"):  # Since Keras 3.13.
    _KERAS[keras.callbacks.OrbaxCheckpoint] = _every_few_batches


def reads_batches(callback: Any, name: str) -> bool:
    """Whether a callback reads single batches of `fit` or `evaluate`.

    It does if it has a hook for batches, on its class or as an attribute, unless the class of that hook, or one made
    from it, says `several_steps_safe = True`, or it is one of Keras's that has it for other settings than these.

    Args:
        callback: A Keras callback.
        name: `"fit"` or `"evaluate"`.

    Example:
        >>> import keras
        >>> from tfscale.training.call.batch_readers import reads_batches
        >>> kinds = [keras.callbacks.ModelCheckpoint("a.keras", save_freq=freq) for freq in ("epoch", 9)]
        >>> [reads_batches(callback, "fit") for callback in kinds]
        [False, True]
    """
    callback = inner_callback(callback)
    hooks = _HOOKS[name]
    if SAFE in vars(callback):
        return not getattr(callback, SAFE)
    if any(hook in vars(callback) for hook in hooks):
        return True
    return any(_reads(callback, owner) for owner in _owners(type(callback), hooks))


def any_reads_batches(callbacks: Any, name: str) -> bool:
    """Whether one of what `fit` or `evaluate` was given as callbacks does.

    Args:
        callbacks: One, several, a `CallbackList`, or None.
        name: As `reads_batches`.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList) and type(callbacks) is not keras.callbacks.CallbackList:
        return True
    return any(reads_batches(callback, name) for callback in listed(callbacks))


def _owners(kind: type, hooks: tuple[str, ...]) -> Iterator[type]:
    """The classes whose hooks these are, but for Keras's empty ones."""
    for hook in hooks:
        owner = next((each for each in kind.__mro__ if hook in vars(each)), keras.callbacks.Callback)
        if owner is not keras.callbacks.Callback:
            yield owner


def _reads(callback: Any, owner: type) -> bool:
    says = next((each for each in type(callback).__mro__ if SAFE in vars(each)), None)
    # What a class says of itself does not hold for a hook that a class made from it puts in its place.
    if says is not None and issubclass(says, owner):
        return not getattr(callback, SAFE)
    return _KERAS.get(owner, lambda _: True)(callback)
