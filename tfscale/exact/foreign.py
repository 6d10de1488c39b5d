"""Is a class or a function one that tfscale can vouch for?"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

from tfscale.framework.layers import axes_of


def is_of_keras(thing: Any) -> bool:
    """Whether a class or function is Keras's or tfscale's own.

    Example:
        >>> import keras
        >>> is_of_keras(keras.layers.Dense), is_of_keras(dict)
        (True, False)
    """
    return str(getattr(thing, "__module__", "")).split(".")[0] in ("keras", "tfscale")


def set_by_user(thing: Any, name: str) -> Any:
    """The function that a script has put on an object in the place of its class's, or None.

    Args:
        thing: A model or layer.
        name: Of a method.

    Example:
        >>> import keras
        >>> layer = keras.layers.Dense(1)
        >>> layer.call = abs
        >>> set_by_user(layer, "call") is abs, set_by_user(layer, "get_config")
        (True, None)
    """
    found = vars(thing).get(name)
    while isinstance(found, functools.partial) and is_of_keras(found.func):
        # tfscale's own, which hands over what it took the place of.
        found = next((each for each in found.args if callable(each)), None)
    return None if found is None or is_of_keras(getattr(found, "__func__", found)) else found


def has_axis_of_rows(owner: Any, arguments: Mapping[str, Any] | None = None, *, ranks: Collection[int] = ()) -> bool:
    """Whether something of Keras's own was told to work along the first axis, which is that of the examples.

    It is not asked for its `get_config`: that fails, or warns, where a part of it is somebody's own.

    Args:
        owner: A layer, loss or metric.
        arguments: What it hands to a function.
        ranks: Of the tensors that it gets: -2 is the first of two axes. Not known, any but -1 may be the first.

    Example:
        >>> import keras
        >>> has_axis_of_rows(keras.layers.Softmax(axis=0)), has_axis_of_rows(keras.layers.Softmax())
        (True, False)
        >>> [has_axis_of_rows(keras.layers.Softmax(axis=-2), ranks=ranks) for ranks in ([2], [3], [])]
        [True, False, True]
    """
    values = [*axes_of(owner), (arguments or {}).get("axis")]
    axes = [axis for value in values for axis in (value if isinstance(value, list | tuple) else [value])]
    return any(axis is not None and _is_first(axis, ranks) for axis in axes)


def _is_first(axis: int, ranks: Collection[int]) -> bool:
    if axis >= 0:
        return axis == 0
    return any(axis + rank == 0 for rank in ranks) if ranks else axis < -1
