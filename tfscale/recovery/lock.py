"""Who uses a directory at this moment?

A lock on an open file, which the system takes back when the process ends, however it ends. POSIX locks, which a fork
does not inherit, and which NFS 4, and NFS 3 with its lock daemon, hold between hosts.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import socket
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # There is none on Windows.
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)

_NAME = "lock"
_SHOWN_CHARACTERS = 100
# A POSIX lock does not keep out other threads of its process: the directories that this process holds.
_HELD: dict[str, int] = {}


class DirectoryLock:
    """Keeps others out of a directory, from `take` to `release`.

    Args:
        directory: Made when it is not there.
    """

    def __init__(self, directory: Path):
        self._directory = directory
        self._key = str(directory.resolve())
        self._descriptor: int | None = None
        self._lost_to: str | None = None
        self._since: str | None = None

    def take(self) -> str | None:
        """Returns None, or the words for who has the directory."""
        if _HELD.get(self._key) == os.getpid():
            return "this very process has used in another `fit`, which has not ended"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._directory / _NAME, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            # A disk that is full or cannot be written: that nothing can be saved is said when it is tried.
            _log.debug("no lock in %s: %s", self._directory, error)
            return None
        return self._lock(self._descriptor)

    def keep(self) -> str | None:
        """As `take`, for who has it already. One that was lost stays lost.

        The system takes a POSIX lock back when any part of its process opens and closes the file, to copy the directory
        say; and the directory may have been removed, with the lock in it.
        """
        if self._lost_to is None:
            if self._descriptor is not None and not _is_at(self._directory / _NAME, self._descriptor):
                self.release()
            self._lost_to = self.take() if self._descriptor is None else self._lock(self._descriptor)
        return self._lost_to

    def release(self) -> None:
        """Lets others in."""
        if self._descriptor is not None:
            # Which gives the lock back, too.
            os.close(self._descriptor)
            self._descriptor = None
            _HELD.pop(self._key, None)

    def _lock(self, descriptor: int) -> str | None:
        try:
            if fcntl is not None:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            holder = describe_holder(_read(descriptor))
            self.release()
            return holder
        except OSError as error:
            if self._since is None:
                _log.warning(
                    "%s cannot be locked (%s): nothing keeps a second run out of it.", self._directory, error.strerror
                )
        _HELD[self._key] = os.getpid()
        self._since = self._since or datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps([socket.gethostname(), os.getpid(), self._since]).encode(), 0)
        return None


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


def _read(descriptor: int) -> Any:
    try:
        return json.loads(os.pread(descriptor, 10_000, 0))
    except (ValueError, RecursionError):
        return None


def describe_holder(noted: Any) -> str:
    """Returns words for who has a directory.

    The note may be anybody's: what does not look like one of ours, [host, process, since], is not shown.
    """
    if not (isinstance(noted, list) and len(noted) == 3):
        return "another process has locked"
    host, pid, since = (ascii(str(each)).strip("'")[:_SHOWN_CHARACTERS] for each in noted)
    return f"process {pid} on host {host} has used since {since}"
