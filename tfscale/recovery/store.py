"""How do files get to a store and back, through TensorFlow's file systems?

`tf.io.gfile.copy` alone writes. A `GFile` whose `close` fails tries again when it is destroyed, and holds Python's
lock for that: all threads, training too, would stand for minutes (TensorFlow 2.21).
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

from tfscale.errors import RecoveryError
from tfscale.recovery.location import RemotePath

SCRATCH = "tfscale-recovery-"
"""With this begins whatever is made in the folder for temporary files."""
_PIECE_BYTES = 4 << 20
_Result = TypeVar("_Result")


class StoreError(RecoveryError):
    """A store does not answer or refuses. What is there may be whole: nothing is passed over or removed for it."""


class Store:
    """The objects of one folder, without those of folders in it.

    Args:
        directory: The folder; stores have none that would have to be made.
    """

    def __init__(self, directory: RemotePath):
        self._directory = directory

    def path(self, name: str) -> str:
        """The whole name of an object."""
        return f"{self._directory}/{name}"

    def names(self) -> list[str]:
        """Those of the objects that are there."""
        # `listdir` would take a store that does not answer for an empty one.
        with _told("list", self.path("")):
            try:
                found = tf.io.gfile.glob(self.path("*"))
            except tf.errors.NotFoundError:
                return []
        return [path.rpartition("/")[2] for path in found]

    def read(self, name: str) -> bytes:
        """Returns a small object.

        Raises:
            FileNotFoundError: When it is not there.
        """
        return b"".join(self.pieces(name))

    def write(self, name: str, content: bytes) -> None:
        """Writes a small object, as a whole or not at all where the store does so."""
        with tempfile.NamedTemporaryFile(prefix=SCRATCH) as file:
            file.write(content)
            file.flush()
            self.upload(Path(file.name), name)

    def upload(self, path: Path, name: str) -> None:
        """Writes an object, the content of a file, in place of one that has this name."""
        if self._directory.name.startswith("ram://"):
            # TensorFlow's file system for tests writes behind what is there (2.21).
            self.delete(name)
        with _told("write", self.path(name)):
            tf.io.gfile.copy(str(path), self.path(name), overwrite=True)

    def download(self, name: str, path: Path) -> None:
        """Writes a file, the content of an object.

        Raises:
            FileNotFoundError: When it is not there.
        """
        with path.open("wb") as file:
            for piece in self.pieces(name):
                file.write(piece)

    def digest(self, name: str) -> tuple[int, str]:
        """Reads an object, and returns how many bytes it has and their SHA-256.

        Raises:
            FileNotFoundError: When it is not there.
        """
        return _digest(self.pieces(name))

    def delete(self, name: str) -> None:
        """Removes an object, if it is there."""
        with _told("delete", self.path(name)), contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(self.path(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yields what an object holds.

        Raises:
            FileNotFoundError: When it is not there.
        """
        # Without asking for the size first: TensorFlow remembers that of gs:// for 5 s, also when another has written.
        with _told("read", self.path(name)), tf.io.gfile.GFile(self.path(name), "rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece


def digest_file(path: Path) -> tuple[int, str]:
    """Returns how many bytes a file of this host has, and their SHA-256."""
    with path.open("rb") as file:
        return _digest(iter(lambda: file.read(_PIECE_BYTES), b""))


def answer_within(limit_s: float, ask: Callable[[], _Result], directory: RemotePath) -> _Result:
    """Returns what `ask` does, called in a thread of its own.

    Args:
        limit_s: TensorFlow tries again for minutes where a store does not answer.
        ask: What is asked.
        directory: For the error.

    Raises:
        StoreError: When there was no answer in time; the thread may go on waiting for one.
    """
    outcome: list[tuple[Any, BaseException | None]] = []

    def note() -> None:
        try:
            outcome.append((ask(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=note, name="tfscale-recovery-store", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not outcome:
        raise StoreError(
            "The state of a run must be where it can be read and written.\n"
            f"Received: {str(directory)!r}, which has not answered in {limit_s:g} s. Look at its name, the network, "
            "proxies and credentials of this host; the log may say more."
        )
    [(result, error)] = outcome
    if error is not None:
        raise error
    return result


def _digest(pieces: Iterator[bytes]) -> tuple[int, str]:
    sha256, num_bytes = hashlib.sha256(), 0
    for piece in pieces:
        sha256.update(piece)
        num_bytes += len(piece)
    return num_bytes, sha256.hexdigest()


@contextlib.contextmanager
def _told(verb: str, path: str) -> Iterator[None]:
    """Says what was done when a file system fails."""
    try:
        yield
    except tf.errors.NotFoundError as error:
        if verb == "read":
            raise FileNotFoundError(f"{path} is not there") from error
        raise _refused(verb, path, error, "Make the bucket, or look at its name.") from error
    except (tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError) as error:
        raise _refused(verb, path, error, "Give this host credentials that may.") from error
    except tf.errors.OpError as error:
        raise _refused(verb, path, error, "Look at the network and the credentials of this host.") from error


def _refused(verb: str, path: str, error: tf.errors.OpError, cure: str) -> StoreError:
    said = str(error.message).strip().partition("\n")[0]
    return StoreError(
        f"The state of a run must be where it can be read and written.\nReceived: {path!r}, which TensorFlow cannot "
        f"{verb}: {said} ({type(error).__name__}). {cure}"
    )
