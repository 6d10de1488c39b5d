"""Where does Python keep a value that the code of a step changes?

In an attribute of an object or a class, in a name of a script or of the function around, in a generator of random
numbers: each is read and set in its own way.
"""

from __future__ import annotations

import abc
import random
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from tfscale.training.step.kept_values import CONTAINERS, is_made, is_plain


class Holder(abc.ABC):
    """What keeps values, by name.

    Args:
        owner: What the names belong to.
    """

    def __init__(self, owner: Any):
        self.owner = owner

    @abc.abstractmethod
    def values(self) -> dict[str, Any]:
        """Those that may be put back."""

    def get(self, name: str) -> Any:
        """What a name stands for now, or None."""
        return self.values().get(name)

    @abc.abstractmethod
    def put(self, name: str, value: Any) -> None:
        """Gives a name a value."""

    @abc.abstractmethod
    def remove(self, name: str) -> None:
        """Takes a name away that was not there before."""

    @abc.abstractmethod
    def title(self, name: str) -> str:
        """What a value is called for people."""

    def made(self) -> set[int]:
        """Layers and the like that it has."""
        return set()


class Attributes(Holder):
    """Of an object that has a `__dict__`: a model, a layer, an object of the user's own, a function.

    Args:
        owner: The object.
        is_meant: Which names are.
    """

    def __init__(self, owner: Any, is_meant: Callable[[str], bool] = lambda _: True):
        super().__init__(owner)
        self._is_meant = is_meant

    def values(self) -> dict[str, Any]:
        """Those that may be put back."""
        return {
            name: value
            for name, value in vars(self.owner).items()
            if is_plain(value) and name[:2] != "__" and self._is_meant(name)
        }

    def get(self, name: str) -> Any:
        """What a name stands for now, in the object or its class, or None."""
        return getattr(self.owner, name, None)

    def put(self, name: str, value: Any) -> None:
        """Gives a name a value: not by `setattr`, by which Keras makes a list of its own of any."""
        vars(self.owner)[name] = value

    def remove(self, name: str) -> None:
        """Takes a name away that was not there before."""
        vars(self.owner).pop(name)

    def title(self, name: str) -> str:
        """What a value is called for people."""
        known_as = getattr(self.owner, "name", None) or getattr(self.owner, "__name__", "?")
        return f"{type(self.owner).__name__}.{name} of {known_as!r}"

    def made(self) -> set[int]:
        """Layers and the like that it has."""
        return _made_in(vars(self.owner))


class ClassAttributes(Attributes):
    """Of a class, such as one of settings, or one that counts its steps."""

    def put(self, name: str, value: Any) -> None:
        """Gives a name a value."""
        type.__setattr__(self.owner, name, value)

    def remove(self, name: str) -> None:
        """Takes a name away that was not there before."""
        type.__delattr__(self.owner, name)

    def title(self, name: str) -> str:
        """What a value is called for people."""
        return f"{self.owner.__name__}.{name}"


class Globals(Holder):
    """Names of a script or module.

    Args:
        owner: Its `__dict__`.
        names: Which are meant.
    """

    def __init__(self, owner: dict[str, Any], names: Collection[str]):
        super().__init__(owner)
        self._names = names

    def values(self) -> dict[str, Any]:
        """Those that may be put back."""
        return {name: self.owner[name] for name in self._names if name in self.owner and is_plain(self.owner[name])}

    def put(self, name: str, value: Any) -> None:
        """Gives a name a value."""
        self.owner[name] = value

    def remove(self, name: str) -> None:
        """Takes a name away that was not there before."""
        self.owner.pop(name)

    def title(self, name: str) -> str:
        """What a value is called for people."""
        return f"{self.owner.get('__name__', '?')}.{name}"

    def made(self) -> set[int]:
        """Layers and the like that it has."""
        return _made_in({name: self.owner.get(name) for name in self._names})


class Cells(Holder):
    """Names of the function around a function.

    Args:
        owner: The function.
        names: Which are meant.
    """

    def __init__(self, owner: types.FunctionType, names: Collection[str]):
        super().__init__(owner)
        cells = zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True)
        self._cells = {name: cell for name, cell in cells if name in names}

    def values(self) -> dict[str, Any]:
        """Those that may be put back."""
        return {name: value for name, value in self._all().items() if is_plain(value)}

    def put(self, name: str, value: Any) -> None:
        """Gives a name a value."""
        self._cells[name].cell_contents = value

    def remove(self, name: str) -> None:
        """Takes a name away that was not there before."""
        del self._cells[name].cell_contents

    def title(self, name: str) -> str:
        """What a value is called for people."""
        return f"{name} of {self.owner.__name__!r}"

    def made(self) -> set[int]:
        """Layers and the like that it has."""
        return _made_in(self._all())

    def _all(self) -> dict[str, Any]:
        return {name: value for name, cell in self._cells.items() if (value := contents_of(cell)) is not None}


class Defaults(Holder):
    """Lists and the like that are defaults of the arguments of a function; they change in themselves only."""

    def values(self) -> dict[str, Any]:
        """Those that may be put back."""
        defaults = [*(self.owner.__defaults__ or ()), *(self.owner.__kwdefaults__ or {}).values()]
        return {f"default {place}": value for place, value in enumerate(defaults) if isinstance(value, CONTAINERS)}

    def put(self, name: str, value: Any) -> None:
        """Does nothing."""

    def remove(self, name: str) -> None:
        """Does nothing."""

    def title(self, name: str) -> str:
        """What a value is called for people."""
        return f"{name} of {self.owner.__name__!r}"


class Draws(Holder):
    """The place of a generator of random numbers, such as `np.random`, `random` and `np.random.default_rng(0)`.

    Args:
        owner: One for which `are_drawn` is true.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> draws = Draws(generator)
        >>> place = draws.values()["place"]
        >>> first = generator.random()
        >>> draws.put("place", place)
        >>> generator.random() == first
        True
    """

    def values(self) -> dict[str, Any]:
        """The place, as one value."""
        owner = self.owner
        if isinstance(owner, np.random.Generator):
            return {"place": owner.bit_generator.state}
        return {"place": owner.getstate() if hasattr(owner, "getstate") else owner.get_state()}

    def put(self, name: str, value: Any) -> None:
        """Goes back to a place."""
        owner = self.owner
        if isinstance(owner, np.random.Generator):
            owner.bit_generator.state = value
        elif hasattr(owner, "setstate"):
            owner.setstate(value)
        else:
            owner.set_state(value)

    def remove(self, name: str) -> None:
        """A place is never new."""

    def title(self, name: str) -> str:
        """What a value is called for people."""
        return f"{name} of {getattr(self.owner, '__name__', type(self.owner).__name__)}"


def are_drawn(value: Any) -> bool:
    """Whether it is something from which random numbers of Python or NumPy are drawn.

    Example:
        >>> are_drawn(random), are_drawn(np.random), are_drawn(np.random.default_rng(0)), are_drawn(np)
        (True, True, True, False)
    """
    is_module = value is random or value is np.random
    return is_module or isinstance(value, np.random.Generator | np.random.RandomState | random.Random)


def contents_of(cell: types.CellType) -> Any:
    """What a name of the function around stands for; None where it has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _made_in(values: Mapping[str, Any]) -> set[int]:
    found: set[int] = set()
    for value in values.values():
        found.update(id(each) for each in (value if isinstance(value, list) else [value]) if is_made(each))
    return found
