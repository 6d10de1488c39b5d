"""Which checkpoint does a run go on from, and who writes the next one?"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from tfscale.errors import RecoveryError
from tfscale.recovery.folder import Folder, Saved, first_line
from tfscale.recovery.store import StoreError
from tfscale.replicas.undisturbed import undisturbed

_log = logging.getLogger(__name__)

STARTS = "epochs"
"""The folder of the starts of epochs."""
WAY_OUT = "`Recovery(..., restart=True)`"


class TakenError(RecoveryError):
    """Another run has come into the directory."""


class CheckpointFolder(Protocol):
    """A folder of checkpoints, the oldest of which go when there are more than are kept."""

    def write(self, saved: Saved, number: int) -> str:
        """Returns the path of the new checkpoint, which was read back."""

    def read(self, path: str) -> Saved:
        """Returns one of those that are complete."""

    def complete(self) -> list[str]:
        """The checkpoints that were written to their end, oldest first."""

    def last_number(self) -> int:
        """The largest one in use; 0 for none."""

    def sweep(self) -> None:
        """Removes what a save left that did not come to its end."""

    def delete(self) -> None:
        """Removes every checkpoint."""


class StateFiles:
    """Checkpoints in a directory; the chief alone reads and writes them.

    Those of the starts of epochs are in a folder of their own: an epoch may have to be begun again when many states
    were saved in the midst of it.

    Args:
        directory: Made when it is not there.
        keep: Checkpoints that are kept, and as many of starts.
        folders: That of checkpoints and that of starts, where they are not of this host.
        patience_s: How long a save waits for the one before, until it is given up; None for as long as that takes.
        look_first: Raises where nothing must be written any more; called before each save, off the training thread.
        check: Raises where a state that was read is none to go on from; it is passed over as a damaged one is.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int,
        *,
        folders: tuple[CheckpointFolder, CheckpointFolder] | None = None,
        patience_s: float | None = None,
        look_first: Callable[[], None] = lambda: None,
        check: Callable[[Saved], None] = lambda saved: None,
    ):
        self._directory = os.fspath(directory)
        self._within, self._starts = folders or (Folder(Path(directory), keep), Folder(Path(directory) / STARTS, keep))
        self._patience_s = patience_s
        self._look_first = look_first
        self._check = check
        self._is_late = False
        # In place of `Thread.join`, which takes a thread for ended where Ctrl-C comes (Python 3.11).
        self._has_ended = threading.Event()
        self._has_ended.set()
        self.failure: Exception | None = None
        """Why the last save failed; None when it did not."""
        self.write_s: float | None = None
        """How long the last save took."""

    @property
    def is_writing(self) -> bool:
        """Whether a save is under way."""
        return not self._has_ended.is_set()

    def read_newest(self) -> Saved | None:
        """Returns the newest state that is whole; None when there is none at all.

        Raises:
            RecoveryError: When there are checkpoints, and none can be read.
        """
        try:
            there = [(folder, path) for folder in (self._within, self._starts) for path in folder.complete()]
        except OSError as error:
            # Its name is too long, say, or a mount is stale: whether there is a state cannot be told.
            raise RecoveryError(
                "A run must be able to see whether there is a state to go on from.\n"
                f"Received: the directory {self._directory!r:.300}: {error.strerror}. Look at its name and at the disk."
            ) from error
        found = next(self._readable(there), None)
        if found is None and there:
            raise RecoveryError(
                "A run that was begun must be able to go on from one of its checkpoints.\n"
                f"Received: {len(there)} in {self._directory!r}, none of which can be read. Delete the directory "
                f"to begin anew, or say {WAY_OUT}."
            )
        self._sweep()
        return found

    def read_start(self, epoch: int) -> Saved | None:
        """Returns the newest state of the start of `epoch`, counted from 0, or of one before it; None for none."""
        found = self._readable([(self._starts, path) for path in self._starts.complete()])
        return next((saved for saved in found if saved.facts["position"][0] <= epoch), None)

    def write(
        self, saved: Saved, *, more_facts: Callable[[], dict[str, Any]] | None = None, is_start: bool = False
    ) -> None:
        """Writes, in a thread of its own; waits for an earlier write to end first.

        Args:
            saved: The state.
            more_facts: Returns what belongs to its facts and takes a while; called in that thread.
            is_start: Whether it is that of the start of an epoch.
        """
        # Only the first one waits for a save that hangs.
        if not self._wait(0.0 if self._is_late else self._patience_s):
            self._is_late = True
            self._fail(TimeoutError("the save before has not ended"))
            return
        self._is_late = False
        args = (saved, more_facts or dict, self._starts if is_start else self._within)
        thread = threading.Thread(target=self._write, args=args, name="tfscale-recovery", daemon=True)
        # Else what waits for its end would wait for one that never began.
        with undisturbed(), contextlib.ExitStack() as if_none_begins:
            if_none_begins.callback(self._has_ended.set)
            self._has_ended.clear()
            thread.start()
            if_none_begins.pop_all()

    def delete(self) -> None:
        """Removes every state, so that a run begins anew."""
        for folder in (self._within, self._starts):
            folder.delete()

    def wait(self) -> None:
        """Returns when nothing is being written any more."""
        if not self._wait(self._patience_s):
            _log.warning("The last save to %s has not ended. The run waits for it.", self._directory)
            self._wait(None)

    def _wait(self, limit_s: float | None) -> bool:
        return self._has_ended.wait(limit_s)

    def _write(self, saved: Saved, more_facts: Callable[[], dict[str, Any]], folder: CheckpointFolder) -> None:
        start_s = time.perf_counter()
        try:
            self._look_first()
            # A new number for each save: to write over a checkpoint would endanger it.
            number = max(self._within.last_number(), self._starts.last_number()) + 1
            path = folder.write(Saved({**saved.facts, **more_facts()}, saved.arrays), number)
        except Exception as error:
            # The disk may be full, gone, or read-only: training must not suffer.
            self._fail(error)
            with contextlib.suppress(OSError):
                # Of another run there is nothing to be swept away.
                if not isinstance(error, TakenError):
                    self._sweep()
        else:
            self.failure = None
            self.write_s = time.perf_counter() - start_s
            _log.debug("saved %s in %.3f s", path, self.write_s)
        finally:
            self._has_ended.set()

    def _fail(self, error: Exception) -> None:
        self.failure = error
        _log.error(
            "NOT SAVED: the state of the run could not be written to %s. Training goes on; a failure now would "
            "lose what was done since the last checkpoint. See that there is room, and that it can be reached. The "
            "cause: %s: %s",
            self._directory,
            type(error).__name__,
            _what(error),
        )

    def _readable(self, there: Sequence[tuple[CheckpointFolder, str]]) -> Iterator[Saved]:
        """Those that are whole, newest first."""
        for folder, path in sorted(there, key=lambda each: _number(each[1]), reverse=True):
            try:
                found = folder.read(path)
                self._check(found)
            except StoreError:
                # It may be whole.
                raise
            except Exception as error:
                # What TensorFlow raises for a damaged file depends on where the damage is.
                _log.error("%s cannot be read and is passed over: %s", path, first_line(error))
                continue
            yield found

    def _sweep(self) -> None:
        for folder in (self._within, self._starts):
            folder.sweep()


def _number(path: str) -> int:
    return int(path.rpartition("-")[2])


def _what(error: Exception) -> str:
    """An error of ours has its cause in the second line."""
    return str(error).replace("\n", " ") if isinstance(error, RecoveryError) else first_line(error)
