"""Is a class or a function one that tfscale can vouch for?"""

from __future__ import annotations

from typing import Any


def is_of_keras(thing: Any) -> bool:
    """Whether a class or function is Keras's or tfscale's own.

    Example:
        >>> import keras
        >>> is_of_keras(keras.layers.Dense), is_of_keras(dict)
        (True, False)
    """
    return str(getattr(thing, "__module__", "")).split(".")[0] in ("keras", "tfscale")
