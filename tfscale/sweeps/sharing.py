"""Which host runs a trial, where several run one sweep, and what becomes of the trials of one that is gone?

Files in the sweep's directory are all that the hosts share. A claim is a link, which one host alone can make. Each host
counts in a file of its own; one whose count stands still for so long, by the clock of who looks, is gone, and what it
had under way is claimed anew. What three hosts were lost with is a row with an error: it may be what ended them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from tfscale.errors import StudyError
from tfscale.sweeps.outcome import outcome_path

_MOST_LOST = 3


class Claims:
    """The claims of this host, and those of the others, seen from here.

    Args:
        directory: Of the sweep, which all hosts see.
        silent_s: After so many seconds without a sign another host is gone.
    """

    def __init__(self, directory: Path, silent_s: float):
        self._folder, self._beats = directory / "claims", directory / "hosts"
        self._silent_s = silent_s
        self._own = f"{socket.gethostname()[:60]}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        # By host its last count, and when it was seen first.
        self._seen: dict[str, tuple[str, float]] = {}
        self._held: list[int] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="tfscale sweep's sign of life", daemon=True)

    def __enter__(self) -> Claims:
        for folder in (self._folder, self._beats):
            folder.mkdir(exist_ok=True)
        self._count(0)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            for number in self._held:
                # Ended in the midst of it: the others need not wait.
                if not outcome_path(self._folder.parent / "trials", number).exists():
                    (self._folder / f"{number:06d}").unlink()
            (self._beats / self._own).unlink()

    def _beat(self) -> None:
        count = 0
        while not self._ended.wait(self._silent_s / 10):
            count += 1
            # A shared directory may be away for a moment.
            with contextlib.suppress(OSError):
                self._count(count)

    def _count(self, count: int) -> None:
        part = self._beats / f".{self._own}"
        part.write_text(str(count), encoding="utf-8")
        part.replace(self._beats / self._own)

    def take(self, numbers: Iterable[int], most: int) -> list[int]:
        """Claims the first of some trials that nobody has.

        Args:
            numbers: Trials without a row.
            most: How many.
        """
        taken: list[int] = []
        for number in numbers:
            if len(taken) == most:
                break
            if self._claim(number):
                taken.append(number)
        self._held += taken
        return taken

    def _claim(self, number: int) -> bool:
        path = self._folder / f"{number:06d}"
        if path.exists():
            return False
        part = self._folder / f".{self._own}"
        part.write_text(self._own, encoding="utf-8")
        try:
            os.link(part, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise StudyError(
                "Several hosts share a sweep in a directory that has hard links.\n"
                f"Received: {self._folder}: {error}. Take another directory, or one host without --shared."
            ) from error
        finally:
            part.unlink()
        return True

    def release_lost(self, numbers: Iterable[int]) -> list[int]:
        """Withdraws the claims of hosts that are gone; returns the trials that too many were lost with.

        Args:
            numbers: Trials without a row.
        """
        hopeless = []
        for number in numbers:
            path = self._folder / f"{number:06d}"
            try:
                holder = path.read_text(encoding="utf-8")
            except OSError:
                continue
            if holder == self._own or not self._is_gone(holder):
                continue
            # Of several that see it, one moves it away.
            with contextlib.suppress(OSError):
                path.rename(self._folder / f"{number:06d}.lost.{holder}")
                if len(list(self._folder.glob(f"{number:06d}.lost.*"))) >= _MOST_LOST:
                    hopeless.append(number)
        return hopeless

    def _is_gone(self, host: str) -> bool:
        try:
            count = (self._beats / host).read_text(encoding="utf-8")
        except OSError:
            # It has ended, or its folder is away: both are told by time.
            count = ""
        now_s = time.monotonic()
        before, since_s = self._seen.get(host, (None, now_s))
        if count != before:
            self._seen[host] = (count, now_s)
            return False
        return now_s - since_s > self._silent_s
