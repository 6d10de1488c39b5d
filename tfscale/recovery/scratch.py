"""Where on this host is a checkpoint put together that goes to a store?"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import time
from pathlib import Path

from tfscale.recovery.lock import DirectoryLock
from tfscale.recovery.store import SCRATCH

_log = logging.getLogger(__name__)

# Files of less than a second, of a few hundred bytes, have no lock.
_OLD_S = 3600.0


class Scratch:
    """A folder of this process in that of temporary files, from the first use to `remove`.

    A process that is killed leaves its folder behind; whoever makes the next one removes it.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._lock: DirectoryLock | None = None

    @property
    def path(self) -> Path:
        """The folder."""
        if self._path is None:
            _sweep(Path(tempfile.gettempdir()))
            self._path = Path(tempfile.mkdtemp(prefix=SCRATCH))
            self._lock = DirectoryLock(self._path)
            self._lock.take()
        return self._path

    def remove(self) -> None:
        """Removes the folder."""
        if self._path is not None and self._lock is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._lock.release()
            self._path = None


def _sweep(directory: Path) -> None:
    """Removes what processes have left that are not there any more."""
    for path in directory.glob(f"{SCRATCH}*"):
        # They may be another user's, and anybody may remove them meanwhile.
        with contextlib.suppress(OSError):
            lock = DirectoryLock(path)
            if path.is_symlink():
                continue
            if path.is_file() and time.time() - path.stat().st_mtime > _OLD_S:
                path.unlink()
            # One without a lock is just being made, or no such folder.
            elif (path / "lock").is_file() and lock.take() is None:
                _log.debug("removes %s, which a process that is gone has left", path)
                shutil.rmtree(path, ignore_errors=True)
                lock.release()
