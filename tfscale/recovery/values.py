"""How is a value of Python written down so that the same one comes back?

As JSON, with arrays apart. What JSON has not, such as tuples, sets, bytes and dates, is written as a dict with one key
that says what it is; a dict of the user's own that has such a key is written as pairs. Arrays of which TensorFlow has
no kind (texts, dates, records, another byte order) are written as NumPy's own files are.
"""

from __future__ import annotations

import base64
import datetime
import io
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_ARRAY, _PAIRS = "__array__", "__dict__"
# Of numpy's arrays those that no file of numbers takes: texts, bytes, dates and durations.
_APART = "USMm"
# Python refuses to write or read larger numbers in decimal digits.
_LARGE_BITS = 4096


class UnsupportedValueError(TypeError):
    """A value that cannot be given back as it was."""


def take_out_arrays(value: Any, arrays: list[np.ndarray]) -> Any:
    """Returns `value` as JSON can hold it; arrays in it are appended to `arrays`.

    Raises:
        UnsupportedValueError: Naming the kind of what cannot be written down.
    """
    if isinstance(value, np.generic):
        return _take_out_scalar(value, arrays)
    if type(value) is int and value.bit_length() > _LARGE_BITS:
        return {"__int__": hex(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [take_out_arrays(each, arrays) for each in value]
    if type(value) is dict and all(type(key) is str for key in value) and not _is_marked(value):
        return {key: take_out_arrays(each, arrays) for key, each in value.items()}
    for name, (kind, write, _) in _KINDS.items():
        if type(value) is kind:
            return {name: take_out_arrays(write(value), arrays)}
    return _take_out_other(value, arrays)


def can_be_written(value: Any) -> None:
    """Looks whether `value` can be written down.

    Raises:
        UnsupportedValueError: Naming what cannot be.
    """
    try:
        take_out_arrays(value, [])
    except RecursionError as error:
        raise UnsupportedValueError("something that holds itself, or has hundreds of levels") from error


def _take_out_scalar(value: np.generic, arrays: list[np.ndarray]) -> Any:
    plain = value.item()
    if value.dtype.kind in _APART or isinstance(value, np.void) or isinstance(plain, np.generic):
        # A record, or a number of more digits than Python's.
        return {"__scalar__": take_out_arrays(np.asarray(value), arrays)}
    return take_out_arrays(plain, arrays)


def _take_out_array(array: np.ndarray, arrays: list[np.ndarray]) -> Any:
    if type(array) not in (np.ndarray, np.memmap):
        # A masked one would lose its mask.
        raise _unsupported(array)
    if array.dtype.kind == "O":
        return {"__objects__": [list(array.shape), take_out_arrays(array.ravel().tolist(), arrays)]}
    if array.dtype.hasobject:
        raise _unsupported(array)
    if _is_of_tensorflow(array.dtype):
        # Written later, when its owner may have changed it.
        arrays.append(array.copy())
        return {_ARRAY: len(arrays) - 1}
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return {"__npy__": base64.b64encode(content.getvalue()).decode()}


def _is_of_tensorflow(dtype: np.dtype) -> bool:
    try:
        return dtype.kind not in _APART and dtype.isnative and bool(tf.as_dtype(dtype).as_numpy_dtype == dtype)
    except TypeError:
        return False


def _unsupported(value: Any) -> UnsupportedValueError:
    return UnsupportedValueError(f"{value!r:.200} of type {type(value).__module__}.{type(value).__qualname__}")


def _take_out_other(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, keras.Variable):
        value = value.value
    if isinstance(value, tf.Tensor | tf.Variable) or hasattr(value, "read_value"):
        value = tf.convert_to_tensor(value)
        return {"__tensor__": [value.dtype.name, take_out_arrays(value.numpy(), arrays)]}
    if isinstance(value, np.ndarray):
        return _take_out_array(value, arrays)
    # What is a number or a text and a little more, such as an enumeration of integers, comes back as that.
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise _unsupported(value)


def put_in_arrays(value: Any, arrays: list[np.ndarray]) -> Any:
    """The inverse of `take_out_arrays`."""
    if isinstance(value, list):
        return [put_in_arrays(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if not _is_marked(value):
        return {key: put_in_arrays(each, arrays) for key, each in value.items()}
    [(name, written)] = value.items()
    if name == _ARRAY:
        return arrays[written]
    written = put_in_arrays(written, arrays)
    if name == "__tensor__":
        return tf.constant(written[1], tf.as_dtype(written[0]))
    if name == "__objects__":
        return _array_of_objects(*written)
    if name == "__int__":
        return int(written, 16)
    if name == "__scalar__":
        return written[()]
    if name == "__npy__":
        return np.load(io.BytesIO(base64.b64decode(written)), allow_pickle=False)
    if name == "__bytes_array__":  # Of earlier versions.
        dtype, shape, text = written
        return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape).copy()
    return _KINDS[name][2](written)


def _is_marked(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in _MARKS


def _array_of_objects(shape: list[int], values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    for place, each in enumerate(values):
        array[place] = each
    return array.reshape(shape)


_KINDS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    _PAIRS: (dict, lambda value: [list(pair) for pair in value.items()], dict),
    "__tuple__": (tuple, list, tuple),
    "__set__": (set, list, set),
    "__frozenset__": (frozenset, list, frozenset),
    "__bytes__": (bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "__complex__": (complex, lambda value: [value.real, value.imag], lambda parts: complex(*parts)),
    "__datetime__": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "__date__": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "__time__": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    "__timedelta__": (
        datetime.timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: datetime.timedelta(*parts),
    ),
}
_MARKS = {*_KINDS, _ARRAY, "__tensor__", "__objects__", "__bytes_array__", "__int__", "__scalar__", "__npy__"}
