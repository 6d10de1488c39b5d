"""Tables and progress on a terminal, by rich where it is installed; plain text everywhere else."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

_STYLES = {"equal": "green", "rounding": "green", "differs": "bold red", "crashed": "bold red"}


def is_rich(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a stream gets colours and a moving line: a terminal, rich is installed, and nobody said no.

    Args:
        stream: Where to.
        environ: `NO_COLOR`, `TERM=dumb` and `TFSCALE_PLAIN` say no.

    Example:
        >>> import io
        >>> from tfscale.console.screen import is_rich
        >>> is_rich(io.StringIO(), {})
        False
    """
    refuses = any(environ.get(name) for name in ("NO_COLOR", "TFSCALE_PLAIN")) or environ.get("TERM") == "dumb"
    return not refuses and stream.isatty() and importlib.util.find_spec("rich") is not None


def show_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    below: Sequence[str],
    *,
    stream: TextIO | None = None,
) -> None:
    """Prints a table by rich. What has no terminal prints text of its own.

    Args:
        title: Above it.
        header: Names of the columns.
        rows: As many texts each.
        below: Lines.
        stream: Where to; standard output by default.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(file=stream or sys.stdout)
    table = Table(title=escape(title), title_justify="left")
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*(_styled(escape(cell), cell) for cell in row))
    console.print(table)
    for line in below:
        console.print(line, markup=False, highlight=False)


def _styled(text: str, cell: str) -> str:
    style = _STYLES.get(cell)
    return f"[{style}]{text}[/{style}]" if style else text


class Progress:
    """What is being done, and how long the rest takes at this pace: a bar on a terminal, else a line for each piece.

    Args:
        total: Pieces; None when it is not known. Of those that come on top nothing is foretold.
        stream: Where to; standard error by default.
        environ: See `is_rich`.
        clock: Seconds, from anywhere.
        of: What pieces are left of, after a space; nothing is said by default.

    Example:
        >>> import io
        >>> from tfscale.console.screen import Progress
        >>> lines = io.StringIO()
        >>> with Progress(2, stream=lines, environ={}, clock=lambda: 0.0) as progress:
        ...     progress.begin("1 replica")
        ...     progress.begin("2 replicas")
        >>> print(lines.getvalue(), end="")
        running 1 replica
        running 2 replicas; about 0 s left
    """

    def __init__(
        self,
        total: int | None = None,
        *,
        stream: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        of: str = "",
    ):
        self._stream = stream or sys.stderr
        self._total = total
        self._clock = clock
        self._of = of
        self._begun_s = clock()
        self._ended = -1
        self._bar: Any = None
        self._task: Any = None
        self._is_rich = is_rich(self._stream, os.environ if environ is None else environ)

    def __enter__(self) -> Progress:
        if self._is_rich:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=Console(file=self._stream), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def begin(self, what: str) -> None:
        """Says that a piece begins; the one before has ended."""
        self._ended += 1
        if self._bar is not None:
            self._bar.update(self._task, description=f"running {what}", completed=self._ended)
        elif self._total is not None and 0 < self._ended < self._total:
            self._say(f"running {what}; about {self._left_s(self._total - self._ended):.0f} s left")
        else:
            self._say(f"running {what}")

    def end(self, what: str, left: int) -> None:
        """Says what came of a piece, and how many are left; for pieces that run side by side."""
        self._ended = max(self._ended, 0) + 1
        if self._bar is not None:
            self.tell(what)
            total = self._ended + left
            self._bar.update(self._task, description=f"{left} left{self._of}", completed=self._ended, total=total)
        else:
            self._say(f"{what}; {left} left{self._of}, about {self._left_s(left):.0f} s")

    def tell(self, what: str) -> None:
        """Says a line that has no part in the pace."""
        if self._bar is not None:
            self._bar.console.print(what, markup=False, highlight=False)
        else:
            self._say(what)

    def _left_s(self, left: int) -> float:
        return (self._clock() - self._begun_s) / self._ended * left

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
