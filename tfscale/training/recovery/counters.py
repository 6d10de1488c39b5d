"""What have callbacks and random generators counted?"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from tfscale.training import _fit_private
from tfscale.training.callbacks.chief_only import inner_callback

_log = logging.getLogger(__name__)
_ARRAY = "__array__"


def read_callbacks(callbacks: Iterable[keras.callbacks.Callback]) -> dict[str, Any]:
    """Returns the counters of Keras's callbacks, and what others return from a `get_state()` of theirs."""
    states = {}
    for key, callback in _by_key(callbacks).items():
        names = _fit_private.callback_counters(callback)
        if isinstance(callback, keras.callbacks.CSVLogger):
            states[key] = {"rows": _read_rows(callback)}
        elif hasattr(callback, "get_state") and hasattr(callback, "set_state"):
            states[key] = callback.get_state()
        elif names:
            # A callback that has not begun yet may lack some.
            states[key] = {name: getattr(callback, name) for name in names if hasattr(callback, name)}
    return states


def restore_callbacks(callbacks: Iterable[keras.callbacks.Callback], states: dict[str, Any]) -> None:
    """Gives callbacks back what `read_callbacks` returned, by class and order within a class."""
    for key, callback in _by_key(callbacks).items():
        state = states.get(key)
        if state is None:
            if _fit_private.callback_counters(callback):
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
    generator = _fit_private.global_seed_generator()
    return {
        "python": [version, list(words), gauss],
        "numpy": np.random.get_state(legacy=False),
        "keras": None if generator is None else keras.ops.convert_to_numpy(generator.state).tolist(),
    }


def restore_random_streams(states: dict[str, Any]) -> None:
    """Sets what `read_random_streams` returned."""
    if states["keras"] is not None:
        # First, because to make it takes a number from Python's generator.
        generator: Any = _fit_private.global_seed_generator(make=True)
        generator.state.assign(np.array(states["keras"]))
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(states["numpy"])


def take_out_arrays(value: Any, arrays: list[np.ndarray]) -> Any:
    """Returns `value` as JSON can hold it; arrays in it are appended to `arrays`."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, dict):
        return {str(key): take_out_arrays(each, arrays) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [take_out_arrays(each, arrays) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    return float(value)


def put_in_arrays(value: Any, arrays: list[np.ndarray]) -> Any:
    """The inverse of `take_out_arrays`."""
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {key: put_in_arrays(each, arrays) for key, each in value.items()}
    if isinstance(value, list):
        return [put_in_arrays(each, arrays) for each in value]
    return value


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
