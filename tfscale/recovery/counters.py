"""What have callbacks and random generators counted?"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from tfscale.errors import RecoveryError
from tfscale.framework.fit import callback_counters, global_seed_generator
from tfscale.recovery.chief_only import inner_callback
from tfscale.recovery.values import UnsupportedValueError, can_be_written

_log = logging.getLogger(__name__)


def read_callbacks(callbacks: Iterable[keras.callbacks.Callback]) -> dict[str, Any]:
    """Returns the counters of Keras's callbacks, and what others return from a `get_state()` of theirs.

    What cannot be saved is left out, with a warning: training must not suffer.
    """
    states = {}
    for key, callback in _by_key(callbacks).items():
        try:
            if isinstance(callback, keras.callbacks.CSVLogger):
                states[key] = {"rows": _read_rows(callback)}
            elif _has_state(callback):
                states[key] = _read_state(callback)
            elif names := callback_counters(callback):
                # A callback that has not begun yet may lack some.
                counted = {name: getattr(callback, name) for name in names if hasattr(callback, name)}
                states[key] = _without_what_cannot_be(counted, type(callback).__name__)
        except Exception as error:
            _tell_left_out("the state", type(callback).__name__, error)
    return states


def _without_what_cannot_be(counted: dict[str, Any], owner: str) -> dict[str, Any]:
    """Leaves out what a script has had logged, say, and cannot be saved; the other logs stay."""
    left = {}
    for name, value in counted.items():
        try:
            can_be_written(value)
            left[name] = value
        except UnsupportedValueError as error:
            if isinstance(value, dict):
                left[name] = _without_what_cannot_be(value, owner)
            else:
                _tell_left_out(repr(name), owner, error)
    return left


def _tell_left_out(what: str, owner: str, error: Exception) -> None:
    _log.warning("%s of callback %s is left out of this checkpoint: %s: %s", what, owner, type(error).__name__, error)


def check_states(callbacks: Iterable[keras.callbacks.Callback]) -> None:
    """Refuses callbacks whose state cannot be saved, before anything is trained.

    Raises:
        RecoveryError: Naming the callback.
    """
    for callback in _by_key(callbacks).values():
        if not _has_state(callback):
            continue
        try:
            _read_state(callback)
        except UnsupportedValueError as error:
            raise RecoveryError(
                "What a callback's `get_state()` returns must be something that can be saved and given back as it was: "
                "numbers, texts, bytes, dates, arrays, tensors, and lists, tuples, sets and dicts of them.\n"
                f"Received: {type(callback).__name__}, whose state holds {error}."
            ) from error
        except Exception as error:  # It may need what `on_train_begin` makes.
            _log.debug("%s has no state yet: %s", type(callback).__name__, error)


def _has_state(callback: Any) -> bool:
    return hasattr(callback, "get_state") and hasattr(callback, "set_state")


def _read_state(callback: Any) -> Any:
    state = callback.get_state()
    can_be_written(state)
    return state


def restore_callbacks(callbacks: Iterable[keras.callbacks.Callback], states: dict[str, Any]) -> None:
    """Gives callbacks back what `read_callbacks` returned, by class and order within a class."""
    for key, callback in _by_key(callbacks).items():
        state = states.get(key)
        if state is None:
            if callback_counters(callback):
                _log.info("%s was not there when the checkpoint was written: it counts from now on.", key)
        elif isinstance(callback, keras.callbacks.CSVLogger):
            _give_back(callback, state, _write_rows)
        elif hasattr(callback, "set_state"):
            _give_back(callback, state, lambda own, given: own.set_state(given))
        else:
            _give_back(callback, state, _set_counters)


def _set_counters(callback: Any, counters: Any) -> None:
    known = callback_counters(callback)
    for name, value in counters.items():
        if name in known:
            setattr(callback, name, value)
        else:
            _log.info("%s counts no %.100a: it is left out.", type(callback).__name__, name)


def _give_back(callback: Any, state: Any, give: Callable[[Any, Any], Any]) -> None:
    try:
        give(callback, state)
    except Exception as error:
        raise RecoveryError(
            "A callback must take back what its `get_state()` returned.\n"
            f"Received: {type(callback).__name__}, whose "
            f"{'`set_state`' if hasattr(callback, 'set_state') else 'saved state'} raised {type(error).__name__}: "
            f"{error}. Let it "
            "take what was saved by an earlier version of it, too, or begin anew in another directory."
        ) from error


def read_random_streams() -> dict[str, Any]:
    """Returns the states of Python's, NumPy's and Keras's global generators."""
    version, words, gauss = random.getstate()
    generator = global_seed_generator()
    return {
        "python": [version, list(words), gauss],
        "numpy": np.random.get_state(legacy=False),
        "keras": None if generator is None else keras.ops.convert_to_numpy(generator.state).tolist(),
    }


def restore_random_streams(states: dict[str, Any]) -> None:
    """Sets what `read_random_streams` returned."""
    if states["keras"] is not None:
        # First, because to make it takes a number from Python's generator.
        generator: Any = global_seed_generator(make=True)
        generator.state.assign(np.array(states["keras"]))
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(states["numpy"])


def _read_rows(logger: keras.callbacks.CSVLogger) -> str:
    """All that a logger has written; it flushes after each row."""
    with open(logger.filename) as file:
        return file.read()


def _write_rows(logger: keras.callbacks.CSVLogger, state: dict[str, str]) -> None:
    """Gives a logger its rows back: it empties its file when `fit` begins, and rows behind the save come again."""
    rows = state["rows"]
    # On workers other than the chief it was never opened.
    if logger.csv_file is not None:
        logger.csv_file.seek(0)
        logger.csv_file.truncate()
        logger.csv_file.write(rows)
        logger.csv_file.flush()
        logger.append_header = not rows


def _by_key(callbacks: Iterable[keras.callbacks.Callback]) -> dict[str, keras.callbacks.Callback]:
    """Callbacks by name and number within a class: workers other than the chief may lack some.

    Of a class those that look at the same number: a script that lists two in another order changes nothing.
    """
    keyed: dict[str, keras.callbacks.Callback] = {}
    for outer in callbacks:
        callback = inner_callback(outer)
        name = type(callback).__name__
        monitor = getattr(callback, "monitor", None)
        name += f"({monitor})" if isinstance(monitor, str) else ""
        count = sum(key.startswith(f"{name} ") for key in keyed)
        keyed[f"{name} {count}"] = callback
    return keyed
