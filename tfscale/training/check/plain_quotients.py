"""Does a step go by a number that the script divided by the number of replicas, and nobody was asked?

`1 / strategy.num_replicas_in_sync` is told in a step what it is there (`replicas/replica_count.py`). Of `1.0 / n`
Python makes a float without asking, and so it does of `1 / float(n)`: only the text of the script shows whence it is.
"""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_COUNT = "num_replicas_in_sync"
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
        found.update(dict.fromkeys(text.quotients_in(code) if text is not None else ()))
    return list(found)


def _text_of(filename: str, space: dict[str, Any]) -> _Text | None:
    source = "".join(linecache.getlines(filename, space))
    try:
        return _Text(filename, ast.parse(source)) if _COUNT in source else None
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
            name: quotient for name, value in bound for quotient in ast.walk(value) if self._is_plain(quotient)
        }
        """Names of what was made of such a quotient."""

    def quotients_in(self, code: types.CodeType) -> Iterator[str]:
        """Those that a function takes from outside of it.

        Args:
            code: Of the function.
        """
        used = {*code.co_names, *code.co_freevars}
        yield from (self._shown(self._quotients[name], name) for name in sorted(used & self._quotients.keys()))
        # A name of its own is bound in the step, and told what counts there.
        for node in (node for node in self._functions if _is_of(node, code)):
            quotients = (each for each in ast.walk(node) if self._is_plain(each, used & self._counts))
            yield from (self._shown(each) for each in quotients)

    def _is_plain(self, node: ast.AST, counts: set[str] | None = None) -> bool:
        """Whether a float is divided by the number of replicas, or anything by the float of it.

        Args:
            node: Any part of the script.
            counts: Names of the number; all, and asking itself, where none are given.
        """
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
            return False
        divisor, is_float = node.right, _is_number(node.left, float)
        if isinstance(divisor, ast.Call) and _name_of(divisor.func) == "float" and len(divisor.args) == 1:
            divisor, is_float = divisor.args[0], is_float or _is_number(node.left, int)
        is_count = _name_of(divisor) in (self._counts if counts is None else counts)
        return is_float and (is_count or (counts is None and _is_asked(divisor)))

    def _shown(self, quotient: ast.AST, name: str = "") -> str:
        bound = f"{name} = " if name else ""
        line = getattr(quotient, "lineno", 0)
        return f"{bound}{ast.unparse(quotient)}, line {line} of {Path(self._filename).name}"


def _bound(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names, of variables and of attributes, with what is assigned to them."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and value is not None:
            yield from ((_name_of(target), value) for target in targets if _name_of(target))


def _is_asked(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == _COUNT


def _name_of(node: Any) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_number(node: ast.expr, kind: type) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) is kind


def _is_of(node: ast.AST, code: types.CodeType) -> bool:
    """Whether a function in the text is that of the code: of a decorated one it begins with the first decorator."""
    first = min(each.lineno for each in [node, *getattr(node, "decorator_list", [])])
    return first == code.co_firstlineno and getattr(node, "name", "<lambda>") == code.co_name
