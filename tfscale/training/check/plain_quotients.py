"""Does a step go by a number that the script made of the number of replicas, and nobody was asked?

`1 / strategy.num_replicas_in_sync` is told in a step what it is there (`replicas/replica_count.py`). Of `1.0 / n`, and
of `1 / float(n)`, Python makes a float without asking, and of `batch // n` a part of the batch that no step has: only
the text of the script shows whence such a number is.
"""

from __future__ import annotations

import ast
import dis
import linecache
import types
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfscale.replicas.replica_count import ReplicaPart
from tfscale.training.step.holders import contents_of

# Of a strategy, and of `DataParallel`.
_COUNTS = ("num_replicas_in_sync", "num_replicas")
# Instructions that read a name, and whose it is.
_READS = {
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME"), "script"),
    **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"), "function"),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), "object"),
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def plain_quotients(functions: Iterable[types.FunctionType]) -> list[str]:
    """What functions of a step take from outside of it, and is such a quotient, with its place.

    Args:
        functions: All of the user's own that the step reaches.

    Example:
        >>> def step(loss):
        ...     return loss * 2
        >>> plain_quotients([step])
        []
    """
    found = dict[str, None]()
    texts = dict[str, _Text | None]()
    for function in functions:
        code = function.__code__
        if code.co_filename not in texts:
            texts[code.co_filename] = _text_of(code.co_filename, function.__globals__)
        text = texts[code.co_filename]
        found.update(dict.fromkeys(text.quotients_in(function) if text is not None else ()))
    return list(found)


def _text_of(filename: str, space: dict[str, Any]) -> _Text | None:
    source = "".join(linecache.getlines(filename, space))
    try:
        return _Text(filename, ast.parse(source)) if any(each in source for each in _COUNTS) else None
    except SyntaxError:
        # A cell of a notebook may hold commands of IPython.
        return None


class _Name(NamedTuple):
    """Of a value, and whose name it is."""

    place: str
    """`"script"`, `"function"`, or `"object"`."""
    name: str


class _Text:
    """A script, and where it makes what of the number of replicas.

    Args:
        filename: Of the script.
        tree: Its text.
    """

    def __init__(self, filename: str, tree: ast.AST):
        self._filename = filename
        self._functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
        bound = [*_bound(tree)]
        self._counts = {name for name, value in bound if _is_asked(value)}
        """What is the number of replicas wherever it is bound."""
        self._quotients = {
            name: quotient
            for name, value in bound
            for quotient in ast.walk(value)
            if isinstance(quotient, ast.BinOp)
            and (_is_asked(_divisor(quotient)) or _is_among(_divisor(quotient), self._counts))
        }
        """What was made of it by a division."""

    def quotients_in(self, function: types.FunctionType) -> Iterator[str]:
        """Those plain numbers that a function takes from outside of it.

        Args:
            function: Of this script.
        """
        code = function.__code__
        used = {*_used(code)}
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        values = {"script": function.__globals__, "function": {name: contents_of(cell) for name, cell in cells}}
        for place, name in sorted(used & self._quotients.keys()):
            quotient = self._quotients[_Name(place, name)]
            if _is_plain(quotient) or _is_plain_value(values.get(place, {}).get(name)):
                yield self._shown(quotient, name)
        # A name of its own is bound in the step, and told what counts there.
        counts = used & self._counts
        for node in (node for node in self._functions if _is_of(node, code)):
            for each in ast.walk(node):
                if isinstance(each, ast.BinOp) and _is_plain(each) and _is_among(_divisor(each), counts):
                    yield self._shown(each)

    def _shown(self, quotient: ast.AST, name: str = "") -> str:
        bound = f"{name} = " if name else ""
        line = getattr(quotient, "lineno", 0)
        return f"{bound}{ast.unparse(quotient)}, line {line} of {Path(self._filename).name}"


def _bound(tree: ast.AST, place: str = "script") -> Iterator[tuple[_Name, ast.expr]]:
    """Names with what is assigned to them; those in the body of a class are its objects'."""
    for node in ast.iter_child_nodes(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and value is not None:
            for target in targets:
                pairs: list[tuple[Any, ast.expr]] = [(target, value)]
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs = list(zip(target.elts, value.elts, strict=False))
                for each, given in pairs:
                    yield _Name("object" if isinstance(each, ast.Attribute) else place, _name_of(each)), given
        within = "function" if isinstance(node, _FUNCTIONS) else "object" if isinstance(node, ast.ClassDef) else place
        yield from _bound(node, within)


def _used(code: types.CodeType, own: frozenset[str] = frozenset()) -> Iterator[_Name]:
    """Names that a function, with those within it, has from outside."""
    own |= {*code.co_cellvars}
    for each in dis.get_instructions(code):
        if each.opname in _READS and not (_READS[each.opname] == "function" and each.argval in own):
            yield _Name(_READS[each.opname], each.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _used(inner, own)


def _divisor(node: ast.BinOp) -> ast.expr | None:
    """By what is divided; of `float(n)` it is `n`."""
    if not isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
        return None
    divisor = node.right
    return divisor.args[0] if _is_float_of(divisor) else divisor  # type: ignore[attr-defined]


def _is_plain(node: ast.BinOp) -> bool:
    """Whether a division by the number of replicas is none that the number is asked about."""
    if not isinstance(node.op, ast.Div):
        return True
    return _is_number(node.left, float) or (_is_float_of(node.right) and _is_number(node.left, int))


def _is_plain_value(value: Any) -> bool:
    return isinstance(value, float | np.floating | np.ndarray | tf.Tensor) and not isinstance(value, ReplicaPart)


def _is_float_of(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name_of(node.func) == "float" and len(node.args) == 1


def _is_asked(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _COUNTS


def _is_among(node: ast.expr | None, names: Set[_Name]) -> bool:
    places = ("object",) if isinstance(node, ast.Attribute) else ("script", "function")
    return any(_Name(place, _name_of(node)) in names for place in places)


def _name_of(node: Any) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_number(node: ast.expr, kind: type) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) is kind


def _is_of(node: ast.AST, code: types.CodeType) -> bool:
    """Whether a function in the text is that of the code: of a decorated one it begins with the first decorator."""
    first = min(each.lineno for each in [node, *getattr(node, "decorator_list", [])])
    return first == code.co_firstlineno and getattr(node, "name", "<lambda>") == code.co_name
