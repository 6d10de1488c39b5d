"""What does a step keep in Python, as `self.count += 1` and `self.seen.append(1)` do?

One device runs a step once, or traces it once. Here each replica does, and whatever looks at it does besides: each of
them begins with the same values, and those of one run are left.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from tfscale.exact.foreign import is_of_keras
from tfscale.framework.models import flat_layers, given_to_compile
from tfscale.gradients.updaters import held_optimizers
from tfscale.replicas.turns import around_turns
from tfscale.training.step.kept_values import CONTAINERS, holds_made, is_made, is_plain, numbers_in, restorer

# Keras's own, which no step of a user's decides by.
_OF_KERAS = {"autocast", "built", "call_signature_parameters", "compiled", "name", "stop_training", "supports_jit"}


class _Held(NamedTuple):
    """Attributes of one owner."""

    owner: Any
    values: dict[str, Any]
    contents: list[Callable[[], None]]
    """Put back what is in them."""
    made: set[int]
    """Layers and the like that it has."""


class OwnNumbers:
    """Attributes of a model, its layers, losses, metrics and optimizers, where a class of the user's has them.

    Args:
        model: Prepared.
    """

    def __init__(self, model: keras.Model):
        parts: list[Any] = [*flat_layers(model), *held_optimizers(model)]
        if model.compiled:
            parts += given_to_compile(model)
        owners = [part for part in parts if hasattr(part, "__dict__") and not is_of_keras(type(part))]
        owners = [owner for owner in owners if not isinstance(owner, types.FunctionType)]
        self._owners = list({id(owner): owner for owner in owners}.values())
        self._known = [{*self._values(owner), *_numbers_of_class(owner)} for owner in self._owners]

    def read(self) -> dict[str, np.ndarray]:
        """The numbers that were there at first, by name."""
        return {name: numbers for name, value, numbers in self._all() if not isinstance(value, CONTAINERS)}

    def read_containers(self) -> dict[str, np.ndarray]:
        """All numbers in lists, dicts and the like that were there at first, by name."""
        return {name: numbers for name, value, numbers in self._all() if isinstance(value, CONTAINERS)}

    def _all(self) -> Iterator[tuple[str, Any, np.ndarray]]:
        for owner, names in zip(self._owners, self._known, strict=True):
            for name in sorted(names):
                value = getattr(owner, name, None)
                numbers = numbers_in(value)
                if numbers is not None:
                    yield f"{type(owner).__name__}.{name} of {getattr(owner, 'name', '?')!r}", value, numbers

    def held(self) -> list[_Held]:
        """For `put_back`."""
        held = []
        for owner in self._owners:
            values = self._values(owner)
            contents = [restorer(value) for value in values.values() if not isinstance(value, int | float | str)]
            held.append(_Held(owner, values, contents, _made_by(owner)))
        return held

    def put_back(self, held: list[_Held]) -> None:
        """Gives all of them the values that they had, and takes away what has come since."""
        for before in held:
            owner = before.owner
            for put_back in before.contents:
                put_back()
            # Then what is true or false may say that something was made, which stays.
            has_made = bool(_made_by(owner) - before.made)
            now = self._values(owner)
            for name in now.keys() - before.values.keys():
                if not (has_made and _may_tell(now[name])) and not holds_made(now[name]):
                    vars(owner).pop(name)
            for name, value in before.values.items():
                stays = (has_made and _may_tell(value)) or holds_made(now.get(name))
                if now.get(name) is not value and not stays:
                    # Not by `setattr`, by which Keras makes a list of its own of any.
                    vars(owner)[name] = value

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Puts them back in the end."""
        held = self.held()
        try:
            yield
        finally:
            self.put_back(held)

    @contextlib.contextmanager
    def of_replica(self, held: list[_Held]) -> Iterator[None]:
        """Begins with `held`, and has its own values again after each turn of other replicas.

        Args:
            held: That with which all replicas begin.
        """
        self.put_back(held)
        if not self._owners:
            yield
            return
        with around_turns(self.held, self.put_back):
            yield

    def _values(self, owner: Any) -> dict[str, Any]:
        mentioned = _names_in_code(owner.__class__)
        return {
            name: value
            for name, value in vars(owner).items()
            if is_plain(value) and name not in _OF_KERAS and (name[0] != "_" or name in mentioned)
        }


class FirstTraces:
    """What a model kept in Python when its step was traced, for the first time, the second ..."""

    def __init__(self) -> None:
        self.held: list[list[_Held]] = []


class BegunTraces:
    """What a model keeps in Python as a step begins.

    One device has one function for a step, which is traced once for data of a kind. Here there may be several (for a
    batch that was looked at, for the others of a call): they are traced with the same values.

    Args:
        model: Prepared.
    """

    def __init__(self, model: keras.Model):
        self._model = model
        self._current: tuple[OwnNumbers, list[_Held]] | None = None

    @contextlib.contextmanager
    def trace(self, first: FirstTraces, index: int) -> Iterator[None]:
        """While a function is traced.

        Args:
            first: Of all functions for the same step.
            index: How often this one was traced before.
        """
        numbers = OwnNumbers(self._model)
        is_first = index >= len(first.held)
        if is_first:
            first.held.append(numbers.held())
        outer, self._current = self._current, (numbers, first.held[index])
        try:
            with contextlib.nullcontext() if is_first else numbers.unchanged():
                yield
        finally:
            self._current = outer

    def numbers(self) -> tuple[OwnNumbers, list[_Held]]:
        """Those of the model, and with which values each replica begins: the same for all steps of a trace."""
        if self._current is not None:
            return self._current
        numbers = OwnNumbers(self._model)
        return numbers, numbers.held()


def _may_tell(value: Any) -> bool:
    """Whether it may say that something was made."""
    return isinstance(value, bool | str)


def _made_by(owner: Any) -> set[int]:
    found: set[int] = set()
    for value in vars(owner).values():
        found.update(id(each) for each in (value if isinstance(value, list) else [value]) if is_made(each))
    return found


@functools.lru_cache(maxsize=1024)
def _names_in_code(kind: type) -> set[str]:
    """Attributes with which methods of a user's class have to do."""
    functions = [value for each in kind.__mro__ if not is_of_keras(each) for value in vars(each).values()]
    codes = [function.__code__ for function in functions if isinstance(function, types.FunctionType)]
    names: set[str] = set()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return names


def _numbers_of_class(owner: Any) -> set[str]:
    own = [kind for kind in type(owner).__mro__ if not is_of_keras(kind)]
    return {
        name
        for kind in own
        for name, value in vars(kind).items()
        if isinstance(value, int | float | np.number) and name[:2] != "__"
    }
