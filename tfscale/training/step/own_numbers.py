"""What does a step keep in Python, as `self.count += 1`, `global step` and `seen.append(1)` do?

One device runs a step once, or traces it once. Here each replica does, and whatever looks at it does besides: each of
them begins with the same values, and those of one run are left.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from tfscale.exact.foreign import is_of_keras
from tfscale.framework.models import flat_layers, given_to_compile
from tfscale.gradients.updaters import held_optimizers
from tfscale.replicas.turns import around_turns
from tfscale.training.step.holders import Attributes, Draws, Holder
from tfscale.training.step.kept_values import CONTAINERS, holds_made, holds_symbols, numbers_in, restorer
from tfscale.training.step.reached import Reached, is_own, reached_from


class _Held(NamedTuple):
    """Values of one holder."""

    holder: Holder
    values: dict[str, Any]
    contents: list[Callable[[], None]]
    """Put back what is in them."""
    made: set[int]
    """Layers and the like that it has."""


class PythonValues:
    """Values that code of the user's own keeps in Python.

    Args:
        reached: What it reaches.
    """

    def __init__(self, reached: Reached):
        self._reached = reached
        self._known = [_countable_in(holder) for holder in reached.holders]

    @property
    def iterators(self) -> list[str]:
        """Names of iterators that it may take from: what one gave cannot be put back."""
        return self._reached.iterators

    @property
    def functions(self) -> list[types.FunctionType]:
        """That code."""
        return self._reached.functions

    def read(self) -> dict[str, np.ndarray]:
        """The numbers that were there at first, by name."""
        return {name: numbers for name, value, numbers in self._all() if not isinstance(value, CONTAINERS)}

    def read_containers(self) -> dict[str, np.ndarray]:
        """All numbers in lists, dicts and the like that were there at first, by name."""
        return {name: numbers for name, value, numbers in self._all() if isinstance(value, CONTAINERS)}

    def _all(self) -> Iterator[tuple[str, Any, np.ndarray]]:
        for holder, names in zip(self._reached.holders, self._known, strict=True):
            for name in sorted(names):
                value = holder.get(name)
                numbers = numbers_in(value)
                if numbers is not None:
                    yield holder.title(name), value, numbers

    def holding_symbols(self) -> list[str]:
        """Names of lists and the like in which there are tensors of a graph."""
        return [
            holder.title(name)
            for holder in self._reached.holders
            for name, value in holder.values().items()
            if holds_symbols(value)
        ]

    def held(self) -> list[_Held]:
        """For `put_back`."""
        held = []
        for holder in self._reached.holders:
            values = holder.values()
            contents = [restorer(value) for value in values.values() if not isinstance(value, int | float | str)]
            held.append(_Held(holder, values, contents, holder.made()))
        return held

    def put_back(self, held: list[_Held]) -> None:
        """Gives all of them the values that they had, and takes away what has come since."""
        for before in held:
            holder = before.holder
            for put_back in before.contents:
                put_back()
            # Then what is true or false may say that something was made, which stays.
            has_made = bool(holder.made() - before.made)
            now = holder.values()
            for name in now.keys() - before.values.keys():
                if not (has_made and _may_tell(now[name])) and not holds_made(now[name]):
                    holder.remove(name)
            for name, value in before.values.items():
                stays = (has_made and _may_tell(value)) or holds_made(now.get(name))
                if now.get(name) is not value and not stays:
                    holder.put(name, value)

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
        if not held:
            yield
            return
        with around_turns(self.held, self.put_back):
            yield


class OwnNumbers(PythonValues):
    """What a step of the user's own keeps in Python: in its model and the parts of that, and in what its code reaches.

    Args:
        model: Prepared.
    """

    def __init__(self, model: keras.Model):
        parts: list[Any] = [*flat_layers(model), *held_optimizers(model)]
        if model.compiled:
            parts += given_to_compile(model)
        parts = [part for part in parts if hasattr(part, "__dict__")]
        owners = [part for part in parts if not is_of_keras(type(part))]
        given = (value for part in parts if is_of_keras(type(part)) for value in vars(part).values())
        super().__init__(reached_from([*owners, *filter(is_own, given)]))


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


def _countable_in(holder: Holder) -> set[str]:
    """Names of those values that two runs of a step are compared by."""
    if isinstance(holder, Draws):
        return set()
    owner, names = holder.owner, {*holder.values()}
    if not isinstance(holder, Attributes) or isinstance(owner, type):
        return names
    kinds = [kind for kind in type(owner).__mro__ if not is_of_keras(kind)]
    return names | {
        name
        for kind in kinds
        for name, value in vars(kind).items()
        if isinstance(value, int | float | np.number) and name[:2] != "__"
    }
