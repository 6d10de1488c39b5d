"""Where is the function that the user named?

A run happens in a process of its own, so a function travels as text: "module:name" or "file.py:name".
"""

import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tfscale.errors import ParityError


@dataclass(frozen=True)
class Target:
    """A function of a user's script.

    Args:
        where: The script, as the dotted name of a module or as a path that ends in ".py".
        name: The function's name in it.
    """

    where: str
    name: str

    @property
    def is_file(self) -> bool:
        """Whether `where` is a path."""
        return self.where.endswith(".py")

    def __str__(self) -> str:
        return f"{Path(self.where).name if self.is_file else self.where}:{self.name}"


def find_target(given: str | Callable[..., Any], role: str) -> Target:
    """Describes what the user gave so that another process finds it too.

    Args:
        given: "module:name", "file.py:name", or a function at the top level of a module or script.
        role: The argument's name, for the error message.

    Returns:
        The function's place; a path is absolute. A module is not looked for yet.

    Raises:
        ParityError: When the text has another form, the file is missing, or the function has no
            place that another process could find.

    Example:
        >>> from json import dumps
        >>> find_target(dumps, "build"), find_target("my_project.train:build", "build")
        (Target(where='json', name='dumps'), Target(where='my_project.train', name='build'))
    """
    if isinstance(given, str):
        return _parse(given, role)
    place = _place(given)
    if place is None:
        raise ParityError(
            f"`{role}` must be a function at the top level of a module or script.\n"
            f"Received: {given!r}. Every run imports it in a process of its own: define it with "
            f"`def` outside of any function, or name it as 'file.py:{role}'."
        )
    return place


def load(target: Target) -> Callable[..., Any]:
    """Imports the script and returns the function; to be called in the process of a run.

    Raises:
        ParityError: When there is no such module, or no such function in it.
    """
    module = _import_file(Path(target.where)) if target.is_file else _import_module(target.where)
    function = getattr(module, target.name, None)
    if not callable(function):
        functions = [name for name, value in vars(module).items() if callable(value)]
        near = difflib.get_close_matches(target.name, functions, n=3, cutoff=0.5)
        raise ParityError(
            f"`{target.where}` must define a function `{target.name}`.\n"
            f"Received: {f'{target.name!r}, which it has not' if function is None else repr(function)}. "
            f"{'Did you mean ' + ' or '.join(near) + '?' if near else 'Define it at top level.'}"
        )
    return function


def _parse(text: str, role: str) -> Target:
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise ParityError(
            f"`{role}` must be 'module:name' or 'file.py:name'.\n"
            f"Received: {text!r}. Name the function after a colon, for example 'train.py:{role}'."
        )
    if not where.endswith(".py"):
        return Target(where, name)
    path = Path(where).absolute()
    if not path.is_file():
        raise ParityError(
            f"`{role}` must name a file that is there.\n"
            f"Received: {text!r}, but there is no file {path}. Check the path and the directory."
        )
    return Target(str(path), name)


def _place(function: Any) -> Target | None:
    """Returns where another process finds `function`; None when only this one has it."""
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or not name.isidentifier() or getattr(module, name, None) is not function:
        return None
    if module.__name__ != "__main__":
        return Target(module.__name__, name)
    if module.__spec__ is not None:
        return Target(module.__spec__.name, name)  # python -m package.module
    path = getattr(module, "__file__", None)
    return Target(os.path.abspath(path), name) if path and path.endswith(".py") else None


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that the user's own imports miss is the script's error, not a wrong name.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ParityError(
            f"There must be a module `{name}`.\n"
            f"Received: {error}. Run from the project's top directory, or name the file, for "
            f"example '{name.replace('.', '/')}.py:build'."
        ) from error


def _import_file(path: Path) -> ModuleType:
    """Imports a file as `python file.py` finds its neighbours, under its own name and only once."""
    name = path.stem
    for candidate in (name, f"{name}_of_verify"):
        known = sys.modules.get(candidate)
        if known is not None and getattr(known, "__file__", None) == str(path):
            return known
        if known is None:
            name = candidate
            break
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ParityError(f"`{path}` must be a Python file.\nReceived: a file that Python cannot import.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
