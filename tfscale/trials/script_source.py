"""Has the source of a user's function changed?"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MAIN = "if __name__ == '__main__'"


def source_digest(function: Callable[..., Any]) -> str | None:
    """Returns a digest of a function's source, and of what it uses of its own file; None where there is no source.

    Comments, docstrings and what it does not use are left out, so that the script may be written on. What it imports
    is not looked at.

    Args:
        function: At the top level of a file.
    """
    function = inspect.unwrap(function)
    try:
        tree = ast.parse(Path(inspect.getsourcefile(function) or "").read_text(encoding="utf-8"))
    except (OSError, TypeError, ValueError, SyntaxError):
        return None
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    used = _used({getattr(function, "__name__", "")}, tree.body)
    # Its text is the same in all versions of Python, unlike the tree.
    return hashlib.sha256("\n".join(map(ast.unparse, used)).encode()).hexdigest()[:16]


def _used(names: set[str], statements: list[ast.stmt]) -> list[ast.stmt]:
    """Those that define one of the names, or a name that one of these uses; and those that are there to be run."""
    found: set[int] = set()
    before = -1
    while len(found) > before:
        before = len(found)
        for place, statement in enumerate(statements):
            defined = _defined(statement)
            if not _is_main(statement) and (defined & names or not defined):
                found.add(place)
                names = names | {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
    return [statements[place] for place in sorted(found)]


def _defined(statement: ast.stmt) -> set[str]:
    """What it is there to define; empty where it does something else."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(each.asname or each.name).partition(".")[0] for each in statement.names}
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    parts = [each for target in targets for each in ast.walk(target)]
    return {each.id for each in parts if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_main(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement).startswith(_MAIN)
