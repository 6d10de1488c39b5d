"""What does the code of a step reach that no part of the model holds?

A counter of the script (`global step`), an object that notes losses, settings in a class, a name of the function
around, a default that is a list, `np.random`: the functions of the user's own say by name what they use. What is
installed, as NumPy and loggers are, is left alone.
"""

from __future__ import annotations

import dis
import functools
import inspect
import io
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfscale.exact.foreign import is_of_keras
from tfscale.training.step.holders import (
    Attributes,
    Cells,
    ClassAttributes,
    Defaults,
    Draws,
    Globals,
    Holder,
    are_drawn,
    contents_of,
)
from tfscale.training.step.kept_values import CONTAINERS

# Of what a longer list holds nothing counts steps.
_LONGEST = 512
# What leads nowhere.
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.ndarray)
# Keras's own, which no step of a user's decides by.
_OF_KERAS = {"autocast", "built", "call_signature_parameters", "compiled", "name", "stop_training", "supports_jit"}
_STORES = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"}
_CHANGES = {"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"}
_CHANGING = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem", "popleft"),
    *("remove", "reverse", "rotate", "setdefault", "sort", "update"),
    *("copyto", "fill", "put", "putmask", "resize", "shuffle", "out", "at"),
}


class Reached(NamedTuple):
    """What functions reach."""

    holders: list[Holder]
    """Of values that they may change."""
    iterators: list[str]
    """Names of what they may take from, of which nobody can give back what was taken."""
    functions: list[types.FunctionType]
    """They themselves, and those of the user's own that they reach."""


class _Names(NamedTuple):
    """Those in the code of a function, with the functions within it."""

    used: frozenset[str]
    stored: frozenset[str]
    """Of the script, or of the function around."""
    attributes: frozenset[str]
    """Of anything, that it sets."""
    changes: bool
    """Whether it changes anything in its place, such as a list."""


def reached_from(things: Iterable[Any]) -> Reached:
    """What the functions of some classes, objects and functions reach, and what these reach in turn.

    Args:
        things: Classes of the user's own, their objects, functions.
    """
    return _Walk(things).reached()


def attributes_of(owner: Any) -> Attributes:
    """Those of an object that a class of the user's may count with; what Keras keeps in it is left alone.

    Args:
        owner: A model, layer, loss, metric or optimizer, or any other object.
    """
    if not any(map(is_of_keras, type(owner).__mro__)):
        return Attributes(owner)
    kind: Any = type(owner)
    mentioned = _names_in_class(kind)
    return Attributes(owner, lambda name: name not in _OF_KERAS and (name[0] != "_" or name in mentioned))


@functools.lru_cache(maxsize=1024)
def _names_in_class(kind: type) -> frozenset[str]:
    """Attributes with which methods of a user's class have to do."""
    functions = [_unwrapped(value) for each in kind.__mro__ if not is_of_keras(each) for value in vars(each).values()]
    used = (_names_in(function.__code__).used for function in functions if isinstance(function, types.FunctionType))
    return frozenset().union(*used)


class _Walk:
    def __init__(self, things: Iterable[Any]):
        left = [*things]
        self._first = {"", *(name for thing in map(_unwrapped, left) for name in _called_first(thing))}
        self._roots = set(map(id, left))
        self._seen = dict[int, Any]()
        self._holders = list[Holder]()
        self._globals = dict[int, tuple[dict[str, Any], set[str]]]()
        self._iterators = set[tuple[str, str]]()
        self._functions = list[tuple[str, frozenset[str]]]()
        self._own = list[types.FunctionType]()
        while left:
            thing = _unwrapped(left.pop())
            if id(thing) not in self._seen:
                # Held: of one that is gone a new one may have the identity.
                self._seen[id(thing)] = thing
                left += filter(_leads_on, self._what_it_reaches(thing))

    def reached(self) -> Reached:
        spaces = [Globals(space, names) for space, names in self._globals.values()]
        used = self._names_that_are_called()
        taken = sorted(f"{name!r} of {owner!r}" for name, owner in self._iterators if name in used)
        return Reached([*self._holders, *spaces], taken, self._own)

    def _names_that_are_called(self) -> set[str]:
        """Those in the code of the functions that were given, of what Keras calls, and of what these call by name."""
        called = set(self._first)
        while found := {each for name, used in self._functions if name in called for each in used} - called:
            called |= found
        return called

    def _what_it_reaches(self, thing: Any) -> Iterator[Any]:
        if isinstance(thing, types.FunctionType):
            yield from self._of_function(thing) if _is_own_code(thing) else ()
        elif isinstance(thing, types.MethodType):
            yield from (thing.__self__, thing.__func__)
        elif isinstance(thing, types.BuiltinMethodType):
            yield thing.__self__
        elif isinstance(thing, functools.partial):
            yield from (thing.func, *thing.args, *thing.keywords.values())
        elif are_drawn(thing):
            self._holders.append(Draws(thing))
        elif isinstance(thing, type):
            yield from self._of_class(thing) if _is_own_code(thing) else ()
        elif isinstance(thing, (*CONTAINERS, tuple)):
            if len(thing) < _LONGEST:
                yield from thing.values() if isinstance(thing, dict) else thing
        elif id(thing) in self._roots or is_own(thing):
            self._holders.append(attributes_of(thing))
            yield type(thing)
            yield from self._values_of(vars(thing), type(thing).__name__)

    def _of_function(self, function: types.FunctionType) -> Iterator[Any]:
        self._own.append(function)
        names, space = _names_in(function.__code__), function.__globals__
        # What stands within another function may be called by any name.
        is_within = function.__qualname__.removesuffix(function.__name__).endswith(">.") or "<" in function.__name__
        self._functions.append(("" if is_within else function.__name__, names.used))
        used = {name: space[name] for name in names.used if name in space}
        modules = {name: used.pop(name) for name in [*used] if isinstance(used[name], types.ModuleType)}
        for module in modules.values():
            yield from self._of_module(module, names)
        self._hold_globals(space, used, names)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        around = {name: contents_of(cell) for name, cell in cells}
        kept = _that_change(around, names)
        if kept:
            self._holders.append(Cells(function, kept))
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        if names.changes and any(isinstance(each, CONTAINERS) for each in defaults):
            self._holders.append(Defaults(function))
        if function.__name__ in names.used:
            self._holders.append(Attributes(function))
        yield from self._values_of(used, function.__module__)
        yield from self._values_of(around, function.__name__)
        yield from defaults

    def _of_module(self, module: types.ModuleType, names: _Names) -> Iterator[Any]:
        """A module of the user's own is a script, too; of NumPy's and Python's the draws are meant."""
        if are_drawn(module):
            yield module
        elif module is np and "random" in names.used:
            yield np.random
        elif _is_file_own(getattr(module, "__file__", None)) and not is_of_keras(module):
            space = vars(module)
            used = {name: space[name] for name in names.used if name in space}
            self._hold_globals(space, used, names._replace(stored=names.attributes))
            yield from self._values_of(used, module.__name__)

    def _hold_globals(self, space: dict[str, Any], used: dict[str, Any], names: _Names) -> None:
        self._globals.setdefault(id(space), (space, set()))[1].update(_that_change(used, names))

    def _of_class(self, kind: type) -> Iterator[Any]:
        self._holders.append(ClassAttributes(kind))
        yield from kind.__bases__
        yield from self._values_of(vars(kind), kind.__name__)

    def _values_of(self, values: Any, owner: str) -> Iterator[Any]:
        for name, value in values.items():
            if _is_iterator(value):
                self._iterators.add((name, owner))
            else:
                yield value


def _called_first(thing: Any) -> Iterator[str]:
    """Names of the functions of something that are called from outside: of its class those that Keras has, too."""
    if isinstance(thing, functools.partial):
        yield from _called_first(_unwrapped(thing.func))
    elif isinstance(thing, types.FunctionType | types.MethodType):
        yield thing.__name__
    else:
        own = [each for each in type(thing).__mro__ if not is_of_keras(each) and each is not object]
        of_keras = [each for each in type(thing).__mro__ if is_of_keras(each)]
        yield from (name for each in own for name in vars(each) if any(hasattr(base, name) for base in of_keras))
        if not of_keras:
            yield "__call__"


def _unwrapped(thing: Any) -> Any:
    """The function that was written, of what stands for it."""
    if isinstance(thing, classmethod | staticmethod):
        thing = thing.__func__
    elif isinstance(thing, property):
        thing = thing.fget
    elif isinstance(thing, functools.cached_property):
        thing = thing.func
    thing = getattr(thing, "python_function", thing) if not isinstance(thing, type) else thing
    return inspect.unwrap(thing) if isinstance(thing, types.FunctionType) else thing


def _that_change(values: Mapping[str, Any], names: _Names) -> set[str]:
    """Names to which code gives another value, or whose value it may change.

    What it only reads needs not be put back: a thread that makes the data may change it meanwhile.
    """
    kinds = (*CONTAINERS, np.ndarray)
    return {
        name for name, value in values.items() if name in names.stored or (names.changes and isinstance(value, kinds))
    }


def _leads_on(value: Any) -> bool:
    """Whether it may hold anything, or be code."""
    return value is not None and not isinstance(value, _PLAIN)


def _is_iterator(value: Any) -> bool:
    """Whether it gives each value once: `itertools.cycle(...)`, a generator, `iter(dataset)`. A file may be written.

    In a graph, what takes from one of TensorFlow is an operation, which shows.
    """
    kind = type(value)
    if not tf.executing_eagerly() and isinstance(value, tf.data.Iterator | tf.distribute.DistributedIterator):
        return False
    return hasattr(kind, "__next__") and hasattr(kind, "__iter__") and not isinstance(value, io.IOBase)


@functools.lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> _Names:
    used, stored, attributes = {*code.co_names, *code.co_freevars}, set[str](), set[str]()
    changes = bool(used & _CHANGING)
    for each in dis.get_instructions(code):
        if each.opname in _STORES:
            stored.add(str(each.argval))
        elif each.opname == "STORE_ATTR":
            attributes.add(str(each.argval))
        changes = changes or each.opname in _CHANGES
    for inner in (_names_in(each) for each in code.co_consts if isinstance(each, types.CodeType)):
        used, stored, attributes = used | inner.used, stored | inner.stored, attributes | inner.attributes
        changes = changes or inner.changes
    return _Names(frozenset(used), frozenset(stored), frozenset(attributes), changes)


def _is_own_code(thing: Any) -> bool:
    """Whether a function or class is the user's own, and not one that is installed."""
    if isinstance(thing, types.FunctionType):
        return not is_of_keras(thing) and _is_file_own(thing.__code__.co_filename)
    module = sys.modules.get(thing.__module__)
    file = getattr(module, "__file__", None)
    # A notebook is no file.
    is_script = thing.__module__ == "__main__" or thing.__module__ not in sys.builtin_module_names
    return not is_of_keras(thing) and (_is_file_own(file) if file else is_script)


def is_own(thing: Any) -> bool:
    """Whether a value is a function of the user's own, or an object of such a class."""
    if isinstance(thing, types.FunctionType | types.MethodType):
        return _is_own_code(getattr(thing, "__func__", thing))
    return hasattr(thing, "__dict__") and not isinstance(thing, types.ModuleType | type) and _is_own_code(type(thing))


def _is_file_own(path: str | None) -> bool:
    return path is not None and not path.startswith(_installed()) and "<frozen" not in path


@functools.lru_cache(maxsize=1)
def _installed() -> tuple[str, ...]:
    """Folders of what is installed, with those of Python's own."""
    paths = sysconfig.get_paths()
    return tuple(str(Path(paths[name])) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
