"""Has the source of a user's function changed?"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_MAIN = "if __name__ == '__main__'"
_INSTALLED = frozenset(("site-packages", "dist-packages"))


def source_digest(function: Callable[..., Any]) -> str | None:
    """Returns a digest of a function's source, and of what it uses of its own file; None where there is no source.

    Comments, docstrings and what it does not use are left out, so that the script may be written on. Files that it
    imports from the folder of its own, and from those below, belong to it as a whole; packages that are installed, and
    files elsewhere, do not.

    Args:
        function: At the top level of a file, whose imports were made.
    """
    function = inspect.unwrap(function)
    try:
        path = Path(inspect.getsourcefile(function) or "").resolve()
        tree = _read(path)
    except (OSError, TypeError, ValueError, SyntaxError):
        return None
    used = _used({getattr(function, "__name__", "")}, tree.body)
    package = getattr(sys.modules.get(function.__module__), "__package__", None) or ""
    # Their text is the same in all versions of Python, unlike the tree.
    texts = [*map(ast.unparse, used), *_texts_of_own_modules(used, package, path)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _read(path: Path) -> ast.Module:
    """The statements of a file, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return tree


def _texts_of_own_modules(statements: Iterable[ast.AST], package: str, script: Path) -> list[str]:
    """Of the modules beside a script that it imports, and of those that these import, in the order of their paths."""
    left, found = [(statements, package)], dict[Path, str]()
    while left:
        statements, package = left.pop()
        for name in _imported(statements, package):
            path = _file_of(name, script.parent)
            is_own = path.suffix == ".py" and script.parent in path.parents and not _INSTALLED & set(path.parts)
            if not is_own or path in (script, *found):
                continue
            try:
                tree = _read(path)
            except (OSError, ValueError, SyntaxError):
                continue
            found[path] = ast.unparse(tree)
            left.append((tree.body, name if path.name == "__init__.py" else name.rpartition(".")[0]))
    return [found[path] for path in sorted(found)]


def _file_of(module: str, folder: Path) -> Path:
    """Where a module was imported from, or where one that is imported later will be found; else the folder itself."""
    known = getattr(sys.modules.get(module), "__file__", None)
    place = folder.joinpath(*module.split("."))
    found = (Path(known),) if known else (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((each.resolve() for each in found if each.is_file()), folder)


def _imported(statements: Iterable[ast.AST], package: str) -> set[str]:
    """The full names that may be those of modules."""
    names = set[str]()
    for each in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(each, ast.Import):
            found = [alias.name for alias in each.names]
        elif isinstance(each, ast.ImportFrom):
            base = each.module or ""
            if each.level:
                try:
                    base = importlib.util.resolve_name("." * each.level + base, package)
                except ImportError:
                    continue
            found = [base, *(f"{base}.{alias.name}" for alias in each.names)]
        else:
            continue
        for parts in (name.split(".") for name in found):
            # With the packages around it, whose own files are run as well.
            names.update(".".join(parts[:count]) for count in range(1, 1 + len(parts)))
    return names


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
