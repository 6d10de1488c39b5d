"""Which host runs a trial, where several run one sweep or study, and what becomes of the trials of one that is gone?

Files in its directory are all that the hosts share. A claim is a link, which one host alone can make. Each host
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
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from tfscale.errors import StudyError

_MOST_LOST = 3
LOST = "each host that ran it was gone before it ended"
"""What is said of a trial with which too many hosts were lost."""


class Claims:
    """The claims of this host, and those of the others, seen from here.

    Args:
        directory: Which all hosts see.
        silent_s: After so many seconds without a sign another host is gone.
        is_done: Whether a trial of this name has ended.
    """

    def __init__(self, directory: Path, silent_s: float, is_done: Callable[[str], bool]):
        self._folder, self._beats = directory / "claims", directory / "hosts"
        self._silent_s, self._is_done = silent_s, is_done
        self._own = f"{socket.gethostname()[:60]}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        # By host its last count, and when it was seen first.
        self._seen: dict[str, tuple[str, float]] = {}
        self._held: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="tfscale's sign of life", daemon=True)

    def __enter__(self) -> Claims:
        for folder in (self._folder, self._beats):
            folder.mkdir(parents=True, exist_ok=True)
        self._count(0)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            for name in self._held:
                # Ended in the midst of it: the others need not wait.
                if not self._is_done(name):
                    (self._folder / name).unlink()
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

    def take(self, names: Iterable[str], most: int) -> list[str]:
        """Claims the first of some trials that nobody has.

        Args:
            names: Of trials.
            most: How many.
        """
        taken: list[str] = []
        for name in names:
            if len(taken) == most:
                break
            if not self._is_done(name) and self._claim(name):
                taken.append(name)
        self._held += taken
        return taken

    def _claim(self, name: str) -> bool:
        path = self._folder / name
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
                "Several hosts share a directory that has hard links.\n"
                f"Received: {self._folder}: {error}. Take another directory, or one host alone."
            ) from error
        finally:
            part.unlink()
        return True

    def release_lost(self, names: Iterable[str]) -> list[str]:
        """Withdraws the claims of hosts that are gone; returns the trials that too many were lost with.

        Args:
            names: Of trials that have not ended.
        """
        hopeless = []
        for name in names:
            path = self._folder / name
            try:
                holder = path.read_text(encoding="utf-8")
            except OSError:
                continue
            if holder == self._own or not self._is_gone(holder):
                continue
            # Of several that see it, one moves it away.
            with contextlib.suppress(OSError):
                path.rename(self._folder / f"{name}.lost.{holder}")
                if len(list(self._folder.glob(f"{name}.lost.*"))) >= _MOST_LOST:
                    hopeless.append(name)
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


def lock(directory: Path, kind: str, flag: str, *, is_shared: bool = False) -> Any:
    """Takes a directory for this process alone, or for those that share it, until what is returned is closed.

    Args:
        directory: That is there.
        kind: What it is of, such as "sweep".
        flag: By which hosts share one.
        is_shared: Whether this one does.

    Raises:
        StudyError: When another process has it.
    """
    file = (directory / f"{kind}.lock").open("a")
    try:
        import fcntl

        fcntl.flock(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except ImportError:
        return file
    except OSError as error:
        file.close()
        raise StudyError(
            f"A {kind} is run by one process.\nReceived: {directory}, which another one has ({error}). "
            f"Give each {kind} a directory of its own, or {flag} on each host that takes part in one."
        ) from error
    return file
