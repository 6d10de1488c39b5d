"""Which numbers of Python does a step change, as `self.count += 1` does?

One device runs a step once, or traces it once. Here each replica does, and whatever looks at it does besides: each of
them begins with the same numbers, and those of one run are left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from tfscale.framework.models import flat_layers
from tfscale.training.foreign import is_of_keras


class OwnNumbers:
    """Attributes of a model and its layers, where a class of the user's has them.

    Args:
        model: Prepared.
    """

    def __init__(self, model: keras.Model):
        self._owners = [layer for layer in flat_layers(model) if not is_of_keras(type(layer))]
        self._known = [{*_numbers(vars(owner)), *_numbers_of_class(owner)} for owner in self._owners]

    def read(self) -> dict[str, np.ndarray]:
        """Those that were there at first, by name."""
        return {
            f"{type(owner).__name__}.{name} of {owner.name!r}": np.asarray(getattr(owner, name))
            for owner, names in zip(self._owners, self._known, strict=True)
            for name in sorted(names)
        }

    def held(self) -> list[dict[str, Any]]:
        """For `put_back`."""
        return [_numbers(vars(owner)) for owner in self._owners]

    def put_back(self, held: list[dict[str, Any]]) -> None:
        """Gives all of them the values that they had, and takes away what has come since."""
        for owner, before in zip(self._owners, held, strict=True):
            now = _numbers(vars(owner))
            for name in now.keys() - before.keys():
                delattr(owner, name)
            for name, value in before.items():
                if now.get(name) is not value:
                    setattr(owner, name, value)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Puts them back in the end."""
        held = self.held()
        try:
            yield
        finally:
            self.put_back(held)


def _numbers(attributes: Any) -> dict[str, Any]:
    # Not what is true or false: it says that something was made, which stays.
    return {name: value for name, value in attributes.items() if _is_number(value)}


def _numbers_of_class(owner: Any) -> set[str]:
    own = [kind for kind in type(owner).__mro__ if not is_of_keras(kind)]
    return {name for kind in own for name, value in vars(kind).items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
