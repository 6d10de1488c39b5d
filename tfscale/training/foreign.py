"""Is a class or a function one that tfscale can vouch for?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfscale.training import _tf_private


def is_of_keras(thing: Any) -> bool:
    """Whether a class or function is Keras's or tfscale's own.

    Example:
        >>> import keras
        >>> is_of_keras(keras.layers.Dense), is_of_keras(dict)
        (True, False)
    """
    return str(getattr(thing, "__module__", "")).split(".")[0] in ("keras", "tfscale")


def has_axis_of_rows(owner: Any, arguments: Mapping[str, Any] | None = None) -> bool:
    """Whether something of Keras's own was told to work along the first axis, which is that of the examples.

    It is not asked for its `get_config`: that fails, or warns, where a part of it is somebody's own.

    Args:
        owner: A layer, loss or metric.
        arguments: What it hands to a function.

    Example:
        >>> import keras
        >>> has_axis_of_rows(keras.layers.Softmax(axis=0)), has_axis_of_rows(keras.layers.Softmax())
        (True, False)
    """
    values = [*_tf_private.axes_of(owner), (arguments or {}).get("axis")]
    return any(0 in (value if isinstance(value, list | tuple) else [value]) for value in values)
