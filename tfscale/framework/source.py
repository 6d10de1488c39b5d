"""What does a function of an installed package say, docstrings and comments apart?

Read from its file: nothing is imported, and Python's own release does not show.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DIGITS = 12
# What parsing adds that nobody wrote, or that says nothing of what is computed.
_UNWRITTEN = frozenset(("ctx", "kind", "type_comment"))


def content(name: str, root: Path | None = None) -> str | None:
    """A hash of a function or class, equal where the same code was written, however it is laid out.

    Args:
        name: Such as `"keras.src.losses.loss:Loss.__call__"`: a module, and what it defines.
        root: Of the package; None for that which would be imported.

    Returns:
        Twelve hexadecimal digits; None where there is no such thing.

    Example:
        >>> len(content("keras.src.losses.loss:Loss.__call__"))
        12
        >>> content("keras.src.losses.loss:Loss.call_me") is None
        True
    """
    module, _, path = name.partition(":")
    package, _, inner = module.partition(".")
    root = root or _root_of(package)
    file = root and root.joinpath(*inner.split(".")).with_suffix(".py")
    if file is None or not file.is_file():
        return None
    node: Any = _parsed(file)
    for step in path.split("."):
        node = next((each for each in _defined_in(node) if each.name == step), None)
        if node is None:
            return None
    return hashlib.sha256(repr(_as_written(node)).encode()).hexdigest()[:_DIGITS]


@functools.cache
def _root_of(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(locations))) if locations else None


@functools.cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


def _defined_in(node: Any) -> Iterator[Any]:
    """What a module or class defines, also under a condition."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each
        elif isinstance(each, ast.If):
            yield from _defined_in(each)


def _as_written(node: Any) -> Any:
    if isinstance(node, list):
        return [_as_written(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    fields = {name: value for name, value in ast.iter_fields(node) if name not in _UNWRITTEN}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
        fields["body"] = node.body[1:]
    # Later releases of Python know of more that may be written, and is not.
    written = {name: _as_written(value) for name, value in fields.items() if value is not None and value != []}
    return type(node).__name__, sorted(written.items())
