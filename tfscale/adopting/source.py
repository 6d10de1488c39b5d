"""The text of a script, and edits of it that leave everything else as it stands."""

from __future__ import annotations

import ast
import io
import os
import shutil
import tempfile
import tokenize
from dataclasses import dataclass
from pathlib import Path

from tfscale.errors import ScriptError

_MOST_BYTES = 10_000_000


@dataclass(frozen=True)
class Source:
    """A script.

    Args:
        path: Where it was read.
        text: Its text, with line feeds alone.
        encoding: As its first lines or its mark say.
        newline: What ends its lines.
    """

    path: Path
    text: str
    encoding: str = "utf-8"
    newline: str = "\n"

    def tree(self) -> ast.Module:
        """Returns its syntax.

        Raises:
            ScriptError: When it is no Python.
        """
        try:
            return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ScriptError(
                "A script must be Python that this interpreter can read.\n"
                f"Received: {str(self.path)!r}: {str(error)[:300]}. Correct it, or use the Python that runs it."
            ) from error

    def write(self, text: str) -> None:
        """Replaces the script as a whole, or not at all; its permissions stay."""
        content = text.replace("\n", self.newline).encode(self.encoding)
        target = self.path.resolve()
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            shutil.copymode(target, name)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise


def read_source(path: Path) -> Source:
    """Reads a script.

    Args:
        path: A `.py` file.

    Raises:
        ScriptError: When there is none, or it is no text of Python.
    """
    if path.suffix == ".ipynb":
        raise ScriptError(
            "Lines can be added to a script, not to a notebook.\n"
            f"Received: {str(path)!r:.300}. Export it first: `jupyter nbconvert --to script`."
        )
    try:
        content = path.read_bytes()
        if len(content) > _MOST_BYTES:
            raise ScriptError(f"A script has 10 MB at most.\nReceived: {str(path)!r:.300}. Name a script.")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except (OSError, SyntaxError, ValueError) as error:
        raise ScriptError(
            "A script must be a file that can be read, in the encoding that it names.\n"
            f"Received: {str(path)!r:.300}: {error}. Give the path of a Python file."
        ) from error
    newline = "\r\n" if "\r\n" in text else "\n"
    return Source(path, text.replace("\r\n", "\n"), encoding, newline)


class Edits:
    r"""Insertions, replacements and indented lines, by the positions of the syntax tree; lines count from 1.

    Args:
        source: What is edited.

    Example:
        >>> from pathlib import Path
        >>> from tfscale.adopting.source import Edits, Source
        >>> edits = Edits(Source(Path("a.py"), "a = 1\nb = f(a)\n"))
        >>> edits.indent(2, 2, 0, "with scope():")
        >>> edits.insert(2, 4, "g(")
        >>> edits.insert(2, 8, ")")
        >>> print(edits.apply(), end="")
        a = 1
        with scope():
            b = g(f(a))
    """

    def __init__(self, source: Source):
        # Columns of the tree are bytes of UTF-8.
        self._lines = [line.encode() for line in source.text.split("\n")]
        self._inside_strings = _lines_inside_strings(source.text)
        self._unit = b"\t" if any(line.startswith(b"\t") for line in self._lines) else b"    "
        self._changes: list[tuple[int, int, int, bytes]] = []
        self._indents: dict[int, list[int]] = {}
        self._before: dict[int, list[bytes]] = {}

    def insert(self, line: int, column: int, text: str) -> None:
        """Puts text at a place."""
        self._changes.append((line, column, column, text.encode()))

    def replace(self, node: ast.expr, text: str) -> bool:
        """Puts text in the place of an expression; False for one of several lines, which stays."""
        if node.end_lineno != node.lineno or node.end_col_offset is None:
            return False
        self._changes.append((node.lineno, node.col_offset, node.end_col_offset, text.encode()))
        return True

    def add_lines(self, before: int, column: int, like: int, lines: list[str]) -> None:
        """Puts whole lines before a line, as deep as the first `column` bytes of line `like`."""
        margin = self._lines[like - 1][:column]
        self._before.setdefault(before, []).extend(margin + line.encode() if line else b"" for line in lines)

    def indent(self, first: int, last: int, column: int, header: str) -> None:
        """Puts lines, which begin at `column`, below a line of their own. A string of several lines stays as it is."""
        while first > 1 and self._is_comment(first - 1, column):
            first -= 1
        self.add_lines(first, column, last, [header])
        for line in range(first, last + 1):
            self._indents.setdefault(line, []).append(column)

    def apply(self) -> str:
        """Returns the new text."""
        new: list[bytes] = []
        for number, line in enumerate(self._lines, 1):
            new += self._before.get(number, [])
            changed = line
            # From the right, so that the places before it stay; at one place, what came first stands first.
            mine = [
                (start, index, end, text) for index, (at, start, end, text) in enumerate(self._changes) if at == number
            ]
            for start, _, end, text in sorted(mine, reverse=True):
                changed = changed[:start] + text + changed[end:]
            if line.strip() and number not in self._inside_strings:
                for column in self._indents.get(number, []):
                    place = min(column, len(changed) - len(changed.lstrip()))
                    changed = changed[:place] + self._unit + changed[place:]
            new.append(changed)
        new += self._before.get(len(self._lines) + 1, [])
        return b"\n".join(new).decode()

    def _is_comment(self, line: int, column: int) -> bool:
        text = self._lines[line - 1]
        return text[column:].startswith(b"#") and not text[:column].strip() and not text.startswith(b"#!")


def _lines_inside_strings(text: str) -> set[int]:
    """The lines that begin inside a string."""
    inside: set[int] = set()
    starts: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name == "STRING":
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
        elif name in ("FSTRING_START", "TSTRING_START"):
            starts.append(token.start[0])
        elif name in ("FSTRING_END", "TSTRING_END"):
            inside.update(range(starts.pop() + 1, token.end[0] + 1))
    return inside
