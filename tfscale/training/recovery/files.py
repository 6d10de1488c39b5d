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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.errors import RecoveryError

_log = logging.getLogger(__name__)

_NAME, _STARTS = "state", "epochs"
WAY_OUT = "`Recovery(..., restart=True)`"
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

    Those of the starts of epochs are in a folder of their own: an epoch may have to be begun again when many states
    were saved in the midst of it.

    Args:
        directory: Made when it is not there.
        keep: Checkpoints that are kept, and as many of starts.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int):
        self._directory = Path(directory)
        self._within, self._starts = _Folder(self._directory, keep), _Folder(self._directory / _STARTS, keep)
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
        paths = sorted([*self._within.complete(), *self._starts.complete()], key=_number)
        found = next(_readable(paths), None)
        if found is not None:
            self._sweep()
        elif paths:
            raise RecoveryError(
                "A run that was begun must be able to go on from one of its checkpoints.\n"
                f"Received: {len(paths)} in {str(self._directory)!r}, none of which can be read. Delete the directory "
                f"to begin anew, or say {WAY_OUT}."
            )
        return found

    def read_start(self, epoch: int) -> Saved | None:
        """Returns the newest state of the start of `epoch`, counted from 0, or of one before it; None for none."""
        found = _readable(sorted(self._starts.complete(), key=_number))
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
        self.wait()
        args = (saved, more_facts or dict, self._starts if is_start else self._within)
        self._thread = threading.Thread(target=self._write, args=args, name="tfscale-recovery", daemon=True)
        self._thread.start()

    def delete(self) -> None:
        """Removes every state, so that a run begins anew."""
        for folder in (self._within, self._starts):
            folder.delete()

    def wait(self) -> None:
        """Returns when nothing is being written any more."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self, saved: Saved, more_facts: Callable[[], dict[str, Any]], folder: _Folder) -> None:
        start_s = time.perf_counter()
        try:
            # A new number for each save: to write over a checkpoint would endanger it.
            number = max([0, *self._within.numbers(), *self._starts.numbers()]) + 1
            saved = Saved({**saved.facts, **more_facts()}, saved.arrays)
            path = folder.write(saved, number)
            _verify(path, saved)
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

    def _sweep(self) -> None:
        for folder in (self._within, self._starts):
            folder.sweep()


class _Folder:
    """A folder of checkpoints, the oldest of which go when there are more than `keep`."""

    def __init__(self, directory: Path, keep: int):
        self._directory = directory
        self._keep = keep

    def write(self, saved: Saved, number: int) -> str:
        """Returns the path of the new checkpoint."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with tf.device("CPU:0"):
            facts = tf.Variable(json.dumps(saved.facts))
            arrays = [tf.Variable(array) for array in saved.arrays]
            manager = self._manager(tf.train.Checkpoint(facts=facts, arrays=arrays))
            path = manager.save(checkpoint_number=number, check_interval=False)
        _flush(self._directory, path)
        return str(path)

    def _manager(self, checkpoint: tf.train.Checkpoint) -> tf.train.CheckpointManager:
        return tf.train.CheckpointManager(checkpoint, str(self._directory), self._keep, checkpoint_name=_NAME)

    def complete(self) -> list[str]:
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
        return list(noted) or [str(self._directory / f"{_NAME}-{number}") for number in self.numbers()]

    def numbers(self) -> list[int]:
        """Those of all checkpoints whose index is there."""
        found = (re.fullmatch(rf"{_NAME}-(\d+)\.index", path.name) for path in self._directory.glob("*.index"))
        return sorted(int(match[1]) for match in found if match)

    def sweep(self) -> None:
        """Removes what a save left that did not come to its end."""
        self._remove_all_but({Path(path).name for path in self.complete()})

    def delete(self) -> None:
        """Removes every checkpoint."""
        (self._directory / "checkpoint").unlink(missing_ok=True)
        self._remove_all_but(set())

    def _remove_all_but(self, kept: set[str]) -> None:
        for path in self._directory.glob(f"{_NAME}-*"):
            if re.split(r"\.(?:index|data-)", path.name)[0] in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _number(path: str) -> int:
    return int(path.rpartition("-")[2])


def _readable(paths: Sequence[str]) -> Iterator[Saved]:
    """Those that are whole, newest first."""
    for path in reversed(paths):
        try:
            found = _read(path)
        except Exception as error:
            # What TensorFlow raises for a damaged file depends on where the damage is.
            _log.error("%s cannot be read and is passed over: %s", path, _first_line(error))
            continue
        yield found


def _verify(path: str, saved: Saved) -> None:
    """Reads a checkpoint back, with its checksums, and compares it with what was to be written.

    Raises:
        RecoveryError: When it is not the same; what was written is removed.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        is_same = reader.get_tensor(_FACTS) == json.dumps(saved.facts).encode()
        # One at a time, and as bytes: NaN is equal to itself then.
        for index, array in enumerate(saved.arrays):
            is_same = is_same and reader.get_tensor(_ARRAY.format(index)).tobytes() == np.asarray(array).tobytes()
        if is_same:
            return
        cause = "other values came back"
    except Exception as error:
        cause = _first_line(error)
    for each in _files_of(path):
        each.unlink(missing_ok=True)
    raise RecoveryError(f"What is written must come back as it was.\nReceived: {path}: {cause}. Look at the disk.")


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
