"""The unpromised names of what TensorFlow computes of something that it has to ask for a tensor first."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

# Whose argument of this name says to what they cast.
_CASTS = {"cast": "dtype", "saturate_cast": "dtype"}
# What comes out of them is a whole number.
_ROUND = frozenset(("ceil", "floor", "floordiv", "range", "rint", "round"))


def becomes_whole() -> bool:
    """Whether whoever asks for a tensor now makes whole numbers of it: by a cast to integers, or by rounding.

    Why: `tf.cast(x, tf.int32)` asks `x` for a tensor of any kind, and casts that; no argument says to what. The public
    dispatch by type takes no class but those that hold tensors (2.21). It stands on Python's stack.
    Breaks first: tests/replicas/test_replica_count.py::test_no_whole_number_is_made_of_it.
    """
    frame = inspect.currentframe()
    frame = None if frame is None else frame.f_back
    while frame is not None:
        module, name = frame.f_globals.get("__name__", "").partition(".")[0], frame.f_code.co_name
        if module == "tensorflow":
            if name in _ROUND:
                return True
            if name in _CASTS and not _is_floating(frame.f_locals.get(_CASTS[name])):
                return True
        elif module not in ("keras", "tfscale"):
            return False
        frame = frame.f_back
    return False


def _is_floating(dtype: Any) -> bool:
    return dtype is None or tf.as_dtype(dtype).is_floating
