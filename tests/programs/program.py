"""What a program of the corpus is: a plain Keras script, and what its constants tell the runner."""

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent / "scripts"
_STRATEGY = re.compile(r"strategy = tf\.distribute\.\w+\(.*\)")


@dataclass(frozen=True)
class Program:
    """One script. Constants at its top are its marks: BATCH, and if need be those that the properties name."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @property
    def sentence(self) -> str:
        return (ast.get_docstring(self.tree) or "").partition("\n")[0]

    @property
    def batch(self) -> int | None:
        """Rows of a global batch; the README's first line stands below the constant that says it."""
        return self._constant("BATCH")

    @property
    def refused(self) -> str | None:
        """The name of tfscale's error that this program must end with on more than one replica."""
        return self._constant("REFUSED")

    @property
    def may_be_refused(self) -> str | bool:
        """The name of tfscale's error that this program may end with in place of being equal; True for any of them."""
        return self._constant("MAY_BE_REFUSED") or False

    @property
    def random(self) -> bool:
        """Whether it draws random numbers for each row: it is compared with those made the same for every row."""
        return bool(self._constant("RANDOM"))

    @property
    def workers(self) -> bool:
        """Whether it is run on two workers as a matter of course."""
        return bool(self._constant("WORKERS"))

    @property
    def reported(self) -> str | None:
        """The public thread that reports what it is about: "keras#20585"."""
        return self._constant("REPORTED")

    @property
    def has_own_strategy(self) -> bool:
        """Whether it was written for tf.distribute; its strategy is handed over to tfscale."""
        return any(makes_strategy(statement) for statement in self.tree.body)

    def _constant(self, name: str) -> Any:
        for statement in self.tree.body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
                return ast.literal_eval(statement.value)
        return None


def makes_strategy(statement: ast.stmt) -> bool:
    """Whether a statement at the top level is `strategy = tf.distribute.MirroredStrategy()` or the like."""
    return bool(_STRATEGY.fullmatch(ast.unparse(statement)))


def all_programs() -> dict[str, Program]:
    """Every program of the corpus, by name."""
    return {path.stem: Program(path) for path in sorted(SCRIPTS.rglob("*.py")) if path.stem != "__init__"}
