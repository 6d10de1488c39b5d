"""Is a class or a function one that tfscale can vouch for?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_of_keras(thing: Any) -> bool:
    """Whether a class or function is Keras's or tfscale's own.

    Example:
        >>> import keras
        >>> is_of_keras(keras.layers.Dense), is_of_keras(dict)
        (True, False)
    """
    return str(getattr(thing, "__module__", "")).split(".")[0] in ("keras", "tfscale")


def has_axis_of_rows(config: Mapping[str, Any]) -> bool:
    """Whether something of Keras's own was told to work along the first axis, which is that of the examples.

    Example:
        >>> import keras
        >>> has_axis_of_rows(keras.layers.Softmax(axis=0).get_config())
        True
        >>> has_axis_of_rows(keras.layers.Softmax().get_config())
        False
    """
    for name in ("axis", "axes", "attention_axes"):
        value = config.get(name)
        if 0 in (value if isinstance(value, list | tuple) else [value]):
            return True
    return False
