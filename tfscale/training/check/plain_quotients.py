"""Does a step go by a number that the script made of the number of replicas, and nobody was asked?

`1 / strategy.num_replicas_in_sync` is told in a step what it is there (`replicas/replica_count.py`). Of `1.0 / n`, and
of `1 / float(n)`, Python makes a float without asking, and of `batch // n` a part of the batch that no step has: only
the text of the script shows whence such a number is.
"""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.replicas.replica_count import ReplicaPart
from tfscale.training.step.holders import contents_of

# Of a strategy, and of `DataParallel`.
_COUNTS = ("num_replicas_in_sync", "num_replicas")
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
        """Names that are the number of replicas wherever they are bound."""
        self._quotients = {
            name: quotient
            for name, value in bound
            for quotient in ast.walk(value)
            if isinstance(quotient, ast.BinOp) and self._is_count(_divisor(quotient))
        }
        """Names of what was made of it by a division."""

    def quotients_in(self, function: types.FunctionType) -> Iterator[str]:
        """Those plain numbers that a function takes from outside of it.

        Args:
            function: Of this script.
        """
        code = function.__code__
        used = {*code.co_names, *code.co_freevars}
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        values = function.__globals__ | {name: contents_of(cell) for name, cell in cells}
        for name in sorted(used & self._quotients.keys()):
            quotient = self._quotients[name]
            if _is_plain(quotient) or _is_plain_value(values.get(name)):
                yield self._shown(quotient, name)
        # A name of its own is bound in the step, and told what counts there.
        counts = used & self._counts
        for node in (node for node in self._functions if _is_of(node, code)):
            for each in ast.walk(node):
                if isinstance(each, ast.BinOp) and _name_of(_divisor(each)) in counts and _is_plain(each):
                    yield self._shown(each)

    def _is_count(self, node: ast.AST | None) -> bool:
        return _is_asked(node) or _name_of(node) in self._counts

    def _shown(self, quotient: ast.AST, name: str = "") -> str:
        bound = f"{name} = " if name else ""
        line = getattr(quotient, "lineno", 0)
        return f"{bound}{ast.unparse(quotient)}, line {line} of {Path(self._filename).name}"


def _bound(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names, of variables and of attributes, with what is assigned to them."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or value is None:
            continue
        for target in targets:
            pairs: list[tuple[Any, ast.expr]] = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            yield from ((_name_of(each), given) for each, given in pairs if _name_of(each))


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


def _name_of(node: Any) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_number(node: ast.expr, kind: type) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) is kind


def _is_of(node: ast.AST, code: types.CodeType) -> bool:
    """Whether a function in the text is that of the code: of a decorated one it begins with the first decorator."""
    first = min(each.lineno for each in [node, *getattr(node, "decorator_list", [])])
    return first == code.co_firstlineno and getattr(node, "name", "<lambda>") == code.co_name
