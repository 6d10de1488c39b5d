"""Where is a run's state kept, so that it is never half there?

TensorFlow's `CheckpointManager` writes under another name, renames, notes the new checkpoint in a file that it
replaces as a whole, and deletes the oldest. Each tensor has a checksum, which reading it verifies. So a kill at any
moment leaves the checkpoints that were complete; after a loss of power, which may leave a file without its contents,
one that cannot be read is passed over with an error in the log.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.errors import RecoveryError

_log = logging.getLogger(__name__)

_NAME = "state"
_FACTS = "facts/.ATTRIBUTES/VARIABLE_VALUE"
_ARRAY = "arrays/{}/.ATTRIBUTES/VARIABLE_VALUE"


@dataclass(frozen=True)
class Saved:
    """The state of a run.

    Args:
        facts: Whatever JSON can hold.
        arrays: Of any number, shape and type.
        path: Where it was read from.
    """

    facts: dict[str, Any]
    arrays: Sequence[np.ndarray]
    path: str = ""


class StateFiles:
    """Checkpoints in a directory; the chief alone reads and writes them.

    Args:
        directory: Made when it is not there.
        keep: Checkpoints that are kept.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int):
        self._directory = Path(directory)
        self._keep = keep
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None
        """Why the last save failed; None when it did not."""
        self.write_s: float | None = None
        """How long the last save took."""

    @property
    def is_writing(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()

    def read_newest(self) -> Saved | None:
        """Returns the newest state that is whole; None when there is none at all.

        Raises:
            RecoveryError: When there are checkpoints, and none can be read.
        """
        paths = self._complete()
        for path in reversed(paths):
            try:
                found = _read(path)
            except Exception as error:
                # What TensorFlow raises for a damaged file depends on where the damage is.
                _log.error("%s cannot be read and is passed over: %s", path, _first_line(error))
                continue
            self._sweep()
            return found
        if paths:
            raise RecoveryError(
                "A run that was begun must be able to go on from one of its checkpoints.\n"
                f"Received: {len(paths)} in {str(self._directory)!r}, none of which can be read. Delete the directory "
                "to begin anew."
            )
        return None

    def write(self, saved: Saved) -> None:
        """Writes, in a thread of its own; waits for an earlier write to end first."""
        self.wait()
        self._thread = threading.Thread(target=self._write, args=(saved,), name="tfscale-recovery", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Returns when nothing is being written any more."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self, saved: Saved) -> None:
        start_s = time.perf_counter()
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with tf.device("CPU:0"):
                facts = tf.Variable(json.dumps(saved.facts))
                arrays = [tf.Variable(array) for array in saved.arrays]
                manager = self._manager(tf.train.Checkpoint(facts=facts, arrays=arrays))
                path = manager.save(checkpoint_number=self._next_number(), check_interval=False)
            _flush(self._directory, path)
        except Exception as error:
            # The disk may be full, gone, or read-only: training must not suffer.
            self.failure = error
            _log.error(
                "NOT SAVED: the state of the run could not be written to %s. Training goes on; a failure now would "
                "lose what was done since the last checkpoint. Make room there. The cause: %s: %s",
                self._directory,
                type(error).__name__,
                _first_line(error),
            )
            with contextlib.suppress(OSError):
                self._sweep()
            return
        self.failure = None
        self.write_s = time.perf_counter() - start_s
        _log.debug("saved %s in %.3f s", path, self.write_s)

    def _manager(self, checkpoint: tf.train.Checkpoint) -> tf.train.CheckpointManager:
        return tf.train.CheckpointManager(checkpoint, str(self._directory), self._keep, checkpoint_name=_NAME)

    def _complete(self) -> list[str]:
        """The checkpoints that were written to their end, oldest first."""
        if not self._directory.is_dir():
            return []
        # The manager's note may have been lost with the power; the files of a checkpoint come before it.
        noted: list[str] = []
        try:
            noted = self._manager(tf.train.Checkpoint()).checkpoints
        except ValueError:
            # So that the next save is not refused for it.
            (self._directory / "checkpoint").unlink(missing_ok=True)
        return list(noted) or [str(self._directory / f"{_NAME}-{number}") for number in self._numbers()]

    def _numbers(self) -> list[int]:
        found = (re.fullmatch(rf"{_NAME}-(\d+)\.index", path.name) for path in self._directory.glob("*.index"))
        return sorted(int(match[1]) for match in found if match)

    def _next_number(self) -> int:
        """A new number for each save: to write over a checkpoint would endanger it."""
        return max(self._numbers(), default=0) + 1

    def _sweep(self) -> None:
        """Removes what a save left that did not come to its end."""
        kept = {Path(path).name for path in self._complete()}
        for path in self._directory.glob(f"{_NAME}-*"):
            if re.split(r"\.(?:index|data-)", path.name)[0] in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _read(path: str) -> Saved:
    reader = tf.train.load_checkpoint(path)
    facts = json.loads(reader.get_tensor(_FACTS))
    names = reader.get_variable_to_shape_map()
    count = sum(name.startswith("arrays/") for name in names)
    return Saved(facts, [reader.get_tensor(_ARRAY.format(index)) for index in range(count)], path)


def _flush(directory: Path, path: str) -> None:
    """Makes the files of a checkpoint survive a loss of power."""
    for each in (*_files_of(path), directory / "checkpoint", directory):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _files_of(path: str) -> Iterator[Path]:
    yield from Path(path).parent.glob(f"{Path(path).name}.*")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
