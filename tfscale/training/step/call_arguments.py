"""What was `fit`, `evaluate` or `predict` called with, whatever signature a class gives it?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import keras

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_ONLY)


class CallArguments(MutableMapping[str, Any]):
    """The arguments of one call by the names that `keras.Model`'s own method gives them.

    A class may hand on what it does not name: `def fit(self, *args, **kwargs)`. Then what is in `kwargs` is found, and
    may be set, by its name, and `args` are Keras's arguments from the one after the last that the class names itself.

    Args:
        method: Bound; of the model's class.
        name: Its name, of a method of `keras.Model`.
        args: Positional arguments of the call.
        kwargs: The others.

    Raises:
        TypeError: As the method would.

    Example:
        >>> from tfscale.training.step.call_arguments import CallArguments
        >>> def fit(x, *args, **kwargs): ...
        >>> given = CallArguments(fit, "fit", ("x", "y"), {"epochs": 2})
        >>> given["batch_size"] = 8
        >>> dict(given), given.args, given.kwargs
        ({'x': 'x', 'y': 'y', 'epochs': 2, 'batch_size': 8}, ('x', 'y'), {'epochs': 2, 'batch_size': 8})
    """

    def __init__(self, method: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]):
        self._bound = inspect.signature(method).bind(*args, **kwargs)
        parameters = self._bound.signature.parameters.values()
        self._named = [each.name for each in parameters if each.kind in _NAMED]
        by_kind = {each.kind: each.name for each in parameters}
        self._rest = by_kind.get(inspect.Parameter.VAR_POSITIONAL, "")
        self._others = by_kind.get(inspect.Parameter.VAR_KEYWORD, "")
        of_keras = list(inspect.signature(getattr(keras.Model, name)).parameters)[1:]
        first = 1 + max((of_keras.index(each) for each in self._named if each in of_keras), default=-1)
        rest = self._bound.arguments.get(self._rest, ())
        self._rest_names = of_keras[first : first + len(rest)]

    @property
    def args(self) -> tuple[Any, ...]:
        """What to call the method with."""
        return self._bound.args

    @property
    def kwargs(self) -> dict[str, Any]:
        """Likewise, by name."""
        return self._bound.kwargs

    def can_take(self, name: str) -> bool:
        """Whether the method has such an argument, or takes any."""
        return name in self._named or name in self._rest_names or bool(self._others)

    def __getitem__(self, name: str) -> Any:
        if name in self._named:
            return self._bound.arguments[name]
        if name in self._rest_names:
            return self._bound.arguments[self._rest][self._rest_names.index(name)]
        return self._by_name()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self._named:
            self._bound.arguments[name] = value
        elif name in self._rest_names:
            values = list(self._bound.arguments[self._rest])
            values[self._rest_names.index(name)] = value
            self._bound.arguments[self._rest] = tuple(values)
        elif self._others:
            self._bound.arguments[self._others] = {**self._by_name(), name: value}
        else:
            raise KeyError(name)

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"an argument is set to None, not removed: {name}")

    def __iter__(self) -> Iterator[str]:
        given = [name for name in self._named if name in self._bound.arguments]
        return iter([*given, *self._rest_names, *self._by_name()])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _by_name(self) -> dict[str, Any]:
        return dict(self._bound.arguments.get(self._others, {}))
