"""How is a checkpoint in a folder of this host, so that it is never half there?

TensorFlow's `CheckpointManager` writes under another name, renames, and notes the new checkpoint in a file that it
replaces as a whole. Each tensor has a checksum, which reading it verifies; the oldest goes when the new one was read
back. So a kill at any moment leaves the checkpoints that were complete; after a loss of power, which may leave a file
without its contents, one that cannot be read is passed over with an error in the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.errors import RecoveryError

_NAME = "state"
_FACTS = "facts/.ATTRIBUTES/VARIABLE_VALUE"
_ARRAY = "arrays/{}/.ATTRIBUTES/VARIABLE_VALUE"
# Of checkpoints, whole or not; TensorFlow writes under some of these names first. All others are somebody else's.
_OURS = re.compile(rf"({_NAME}-\d{{1,18}})(_temp|\.index.*|\.data-.*|\.tempstate.*)")


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


class Folder:
    """A folder of checkpoints of this host, the oldest of which go when there are more than `keep`.

    Args:
        directory: Made when it is not there.
        keep: How many.
    """

    def __init__(self, directory: Path, keep: int):
        self._directory = directory
        self._keep = keep

    def write(self, saved: Saved, number: int) -> str:
        """Returns the path of the new checkpoint, which was read back."""
        self._directory.mkdir(parents=True, exist_ok=True)
        before = self.complete()
        with tf.device("CPU:0"):
            facts = tf.Variable(json.dumps(saved.facts))
            arrays = [tf.Variable(array) for array in saved.arrays]
            manager = self._manager(tf.train.Checkpoint(facts=facts, arrays=arrays))
            path = str(manager.save(checkpoint_number=number, check_interval=False))
        try:
            _flush(self._directory, path)
            _verify(path, saved)
        except Exception:
            self._keep_only(before)
            raise
        # With `keep=1` there is no other one until now.
        self._keep_only([*before, path][-self._keep :])
        return path

    def read(self, path: str) -> Saved:
        """Returns one of those that are complete."""
        with _reader(path) as reader:
            facts = json.loads(reader.get_tensor(_FACTS))
            names = reader.get_variable_to_shape_map()
            count = sum(name.startswith("arrays/") for name in names)
            return Saved(facts, [reader.get_tensor(_ARRAY.format(index)) for index in range(count)], path)

    def _manager(self, checkpoint: tf.train.Checkpoint) -> tf.train.CheckpointManager:
        # It would delete the oldest before the newest was looked at.
        return tf.train.CheckpointManager(checkpoint, str(self._directory), None, checkpoint_name=_NAME)

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
        own = [path for path in noted if re.fullmatch(rf"{_NAME}-\d{{1,18}}", Path(path).name)]
        return own or [str(self._directory / f"{_NAME}-{number}") for number in self._numbers()]

    def last_number(self) -> int:
        """The largest one in use; 0 for none."""
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        """Those of all checkpoints whose index is there."""
        found = (re.fullmatch(rf"{_NAME}-(\d{{1,18}})\.index", path.name) for path in self._directory.glob("*.index"))
        return sorted(int(match[1]) for match in found if match)

    def sweep(self) -> None:
        """Removes what a save left that did not come to its end."""
        self._remove_all_but({Path(path).name for path in self.complete()})

    def delete(self) -> None:
        """Removes every checkpoint."""
        self._keep_only([])

    def _keep_only(self, paths: Sequence[str]) -> None:
        """Removes every checkpoint but these, oldest first; the manager's note names them before."""
        names, note = [Path(path).name for path in paths], self._directory / "checkpoint"
        if names:
            lines = [
                f'model_checkpoint_path: "{names[-1]}"',
                *(f'all_model_checkpoint_paths: "{name}"' for name in names),
            ]
            # What has none, the manager takes for one that is to be preserved.
            lines += [f"all_model_checkpoint_timestamps: {time.time()}"] * len(names)
            # As a whole, or not at all.
            partial = self._directory / "checkpoint.partial"
            with partial.open("w") as file:
                file.write("\n".join([*lines, ""]))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(note)
        else:
            note.unlink(missing_ok=True)
        self._remove_all_but(set(names))

    def _remove_all_but(self, kept: set[str]) -> None:
        for path in self._directory.glob(f"{_NAME}-*"):
            match = _OURS.fullmatch(path.name)
            if match is None or match[1] in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _reader(path: str) -> Iterator[Any]:
    """TensorFlow takes a name for a pattern where it reads, and not where it writes (2.21): "run [1]" is not found."""
    if not re.search(r"[*?\[\]\\]", path):
        yield tf.train.load_checkpoint(path)
        return
    with tempfile.TemporaryDirectory(prefix="tfscale-") as directory:
        link = Path(directory) / "folder"
        link.symlink_to(Path(path).parent.absolute())
        yield tf.train.load_checkpoint(str(link / Path(path).name))


def _verify(path: str, saved: Saved) -> None:
    """Reads a checkpoint back, with its checksums, and compares it with what was to be written.

    Raises:
        RecoveryError: When it is not the same.
    """
    try:
        with _reader(path) as reader:
            is_same = reader.get_tensor(_FACTS) == json.dumps(saved.facts).encode()
            # One at a time, and as bytes: NaN is equal to itself then.
            for index, array in enumerate(saved.arrays):
                is_same = is_same and reader.get_tensor(_ARRAY.format(index)).tobytes() == np.asarray(array).tobytes()
        if is_same:
            return
        cause = "other values came back"
    except Exception as error:
        cause = first_line(error)
    raise RecoveryError(f"What is written must come back as it was.\nReceived: {path}: {cause}. Look at the disk.")


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


def first_line(error: Exception) -> str:
    """Returns what an error says first; TensorFlow's say much."""
    return str(error).strip().partition("\n")[0]
