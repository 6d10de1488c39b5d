"""Where has an argument gone that a function has no longer? Into a field of another argument, or to another name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def refusing_moved(
    groups: Mapping[str, type], renamed: Mapping[str, str] | None = None
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Has a function, or an `__init__`, write out the new line where it is called with arguments that have moved.

    Its signature stays what it is, for readers and type checkers.

    Args:
        groups: By argument, the dataclass that has what moved as its fields.
        renamed: By its former name, the argument.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Colour:
        ...     hue: int = 0
        >>> @refusing_moved({"colour": Colour})
        ... def paint(wall, colour=None):
        ...     return wall
        >>> paint("north", hue=3)
        Traceback (most recent call last):
        ...
        TypeError: `hue` is a field of `tfscale.Colour`.
        Received: hue=3. Write: tfscale.paint('north', colour=tfscale.Colour(hue=3))
    """
    homes = {field.name: argument for argument, group in groups.items() for field in dataclasses.fields(group)}
    others = dict(renamed or {})

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            old = [name for name in kwargs if name in homes or name in others]
            if not old:
                return function(*args, **kwargs)
            is_method = function.__name__ == "__init__"
            name = type(args[0]).__name__ if is_method else function.__name__
            said = [
                f"`{each}` is a field of `tfscale.{groups[homes[each]].__name__}`."
                if each in homes
                else f"`{each}` is given as `{others[each]}`."
                for each in old
            ]
            received = ", ".join(f"{each}={_shown(kwargs[each])}" for each in old)
            line = _line(args[1:] if is_method else args, kwargs, homes, others, groups)
            raise TypeError(f"{' '.join(said)}\nReceived: {received}. Write: tfscale.{name}({line})")

        return checked

    return decorate


def _line(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    homes: Mapping[str, str],
    others: Mapping[str, str],
    groups: Mapping[str, type],
) -> str:
    """The arguments as they are to be written; a group that was given keeps what was said in it."""
    plain: dict[str, str] = {}
    fields: dict[str, dict[str, str]] = {}
    for name, value in kwargs.items():
        if name in homes:
            fields.setdefault(homes[name], {})[name] = _shown(value)
        elif name in groups and isinstance(value, groups[name]):
            fields[name] = {**_set_fields(value), **fields.get(name, {})}
        else:
            plain[others.get(name, name)] = _shown(value)
    made = {
        argument: f"tfscale.{groups[argument].__name__}({', '.join(f'{n}={v}' for n, v in inner.items())})"
        for argument, inner in fields.items()
    }
    named = [f"{name}={value}" for name, value in {**plain, **made}.items()]
    return ", ".join([*map(_shown, args), *named])


def _set_fields(group: Any) -> dict[str, str]:
    values = {field: getattr(group, field.name) for field in dataclasses.fields(group)}
    return {field.name: _shown(value) for field, value in values.items() if value is not field.default}


def _shown(value: Any) -> str:
    """Numbers and text as they were written; of anything else its kind, for its `repr` may be pages."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return f"<{type(value).__name__}>"
