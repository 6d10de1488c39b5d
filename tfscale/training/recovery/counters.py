"""What have callbacks and random generators counted?"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from tfscale.errors import RecoveryError
from tfscale.framework.fit import callback_counters, global_seed_generator
from tfscale.training.callbacks.chief_only import inner_callback
from tfscale.training.recovery.values import UnsupportedValueError, take_out_arrays

_log = logging.getLogger(__name__)


def read_callbacks(callbacks: Iterable[keras.callbacks.Callback]) -> dict[str, Any]:
    """Returns the counters of Keras's callbacks, and what others return from a `get_state()` of theirs.

    What cannot be saved is left out, with a warning: training must not suffer.
    """
    states = {}
    for key, callback in _by_key(callbacks).items():
        names = callback_counters(callback)
        if isinstance(callback, keras.callbacks.CSVLogger):
            states[key] = {"rows": _read_rows(callback)}
        elif _has_state(callback):
            try:
                states[key] = _read_state(callback)
            except Exception as error:
                _log.warning(
                    "the state of callback %s is left out of this checkpoint: %s: %s",
                    type(callback).__name__,
                    type(error).__name__,
                    error,
                )
        elif names:
            # A callback that has not begun yet may lack some.
            states[key] = {name: getattr(callback, name) for name in names if hasattr(callback, name)}
    return states


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
    take_out_arrays(state, [])
    return state


def restore_callbacks(callbacks: Iterable[keras.callbacks.Callback], states: dict[str, Any]) -> None:
    """Gives callbacks back what `read_callbacks` returned, by class and order within a class."""
    for key, callback in _by_key(callbacks).items():
        state = states.get(key)
        if state is None:
            if callback_counters(callback):
                _log.info("%s was not there when the checkpoint was written: it counts from now on.", key)
        elif isinstance(callback, keras.callbacks.CSVLogger):
            _write_rows(callback, state["rows"])
        elif hasattr(callback, "set_state"):
            callback.set_state(state)
        else:
            for name, value in state.items():
                setattr(callback, name, value)


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


def _write_rows(logger: keras.callbacks.CSVLogger, rows: str) -> None:
    """Gives a logger its rows back: it empties its file when `fit` begins, and rows behind the save come again."""
    # On workers other than the chief it was never opened.
    if logger.csv_file is not None:
        logger.csv_file.seek(0)
        logger.csv_file.truncate()
        logger.csv_file.write(rows)
        logger.csv_file.flush()
        logger.append_header = not rows


def _by_key(callbacks: Iterable[keras.callbacks.Callback]) -> dict[str, keras.callbacks.Callback]:
    """Callbacks by name and number within a class: workers other than the chief may lack some."""
    keyed: dict[str, keras.callbacks.Callback] = {}
    for outer in callbacks:
        callback = inner_callback(outer)
        name = type(callback).__name__
        count = sum(key.startswith(f"{name} ") for key in keyed)
        keyed[f"{name} {count}"] = callback
    return keyed
