"""Where do the rows of a trace, and what they come to, go?"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfscale.measure import TraceRow, format_trace, read_trace
from tfscale.recovery.location import RemotePath, find_directory
from tfscale.recovery.store import Store, StoreError, answer_within

_log = logging.getLogger(__name__)
# So long a store may take for an answer.
_ANSWER_S = 30.0


class NoiseFile:
    """A trace, and beside it a summary with the same name and the ending ".json".

    Args:
        path: Of the trace, here or in a store.
    """

    def __init__(self, path: str | os.PathLike[str]):
        folder, _, self._name = os.fspath(path).rpartition("/")
        self._folder = find_directory(folder or ".")
        self._summary = f"{self._name.removesuffix('.csv')}.json"
        self._is_new = True

    def begin(self, last_step: int | None) -> None:
        """Says that the run begins, or goes on.

        Args:
            last_step: Up to which the rows that are there are kept; None to keep none.
        """
        self._is_new = last_step is None
        path = None if isinstance(self._folder, RemotePath) else self._folder / self._name
        if last_step is None or path is None:
            return
        kept = [row for row in read_trace(path) if row.step <= last_step] if path.exists() else []
        self._is_new = not kept
        if kept:
            self._replace(path, format_trace(kept, layers=list(kept[0].layers)))

    def write(self, rows: Sequence[TraceRow], layers: Sequence[str], summary: dict[str, Any]) -> None:
        """Adds rows, and writes the summary anew. Where a store refuses that, training goes on."""
        texts = [format_trace(rows, layers=layers, with_header=header) for header in (False, True)]
        told = json.dumps(summary, indent=1) + "\n"
        if isinstance(self._folder, RemotePath):
            self._write_remote(self._folder, texts, told)
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / self._name).open("w" if self._is_new else "a", encoding="utf-8") as file:
                file.write(texts[self._is_new])
            self._replace(self._folder / self._summary, told)
        self._is_new = False

    def _replace(self, path: Path, text: str) -> None:
        """Whoever reads it meanwhile gets the old one or the new one."""
        part = path.with_name(f"{path.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)

    def _write_remote(self, folder: RemotePath, texts: Sequence[str], summary: str) -> None:
        """An object of a store is written as a whole."""
        store = Store(folder)

        def write() -> None:
            try:
                old = b"" if self._is_new else store.read(self._name)
            except FileNotFoundError:
                old = b""
            store.write(self._name, old + texts[not old].encode())
            store.write(self._summary, summary.encode())

        try:
            answer_within(_ANSWER_S, write, folder)
        except StoreError as error:
            _log.warning("%s is without the rows of this epoch. %s", store.path(self._name), error)
