"""How is a checkpoint of a store whole, or not there at all?

It is put together and verified on this host, as any other one. Then its files are uploaded and read back once, and its
manifest is written last: one object, which a store takes as a whole or not at all. See `manifest`.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tfscale.errors import RecoveryError
from tfscale.recovery.files import STARTS, StateFiles
from tfscale.recovery.folder import Folder, Saved
from tfscale.recovery.lease import DirectoryLease, LeaseTimes
from tfscale.recovery.location import RemotePath
from tfscale.recovery.manifest import (
    Manifest,
    StoredFile,
    complete,
    last_number,
    leftovers,
    manifest_name,
    names_of,
    parse_manifest,
)
from tfscale.recovery.scratch import Scratch
from tfscale.recovery.store import Store, StoreError, digest_file

_log = logging.getLogger(__name__)

# So long a save waits for the one before: TensorFlow tries again for minutes where a store does not answer.
_PATIENCE_S = 60.0

OpenStore = Callable[[RemotePath], Store]


class RemoteDirectory:
    """A directory of a store: who uses it, and what is saved there. Nothing is done before `take`.

    Args:
        directory: The one.
        keep: Checkpoints that are kept, and as many of starts.
        open_store: Returns the objects of a folder.
        times: Of the lease.
        check: Raises where a state that was read is none to go on from.
    """

    def __init__(
        self,
        directory: RemotePath,
        keep: int,
        *,
        open_store: OpenStore = Store,
        times: LeaseTimes | None = None,
        check: Callable[[Saved], None] = lambda saved: None,
    ):
        self._scratch = Scratch()
        self._lease = DirectoryLease(directory, open_store(directory), times)
        folders = [
            RemoteFolder(open_store(path), keep, scratch=self._scratch, check=self._lease.check, is_start=is_start)
            for path, is_start in ((directory, False), (directory / STARTS, True))
        ]
        self.files = StateFiles(directory, keep, folders=(folders[0], folders[1]), patience_s=_PATIENCE_S, check=check)
        """What is saved there."""

    def take(self) -> str | None:
        """Returns None, or the words for who has the directory.

        Raises:
            StoreError: When the store does not answer in time, or refuses.
        """
        return self._lease.take()

    def release(self) -> None:
        """Lets others in."""
        self._lease.release()
        self._scratch.remove()


class RemoteFolder:
    """A folder of checkpoints of a store, the oldest of which go when there are more than `keep`.

    Args:
        store: Its objects.
        keep: How many.
        scratch: A folder of this host.
        check: Raises where another run has the directory; called before a checkpoint becomes complete.
        is_start: Whether they are those of starts of epochs.
    """

    def __init__(self, store: Store, keep: int, *, scratch: Scratch, check: Callable[[], None], is_start: bool):
        self._store = store
        self._keep = keep
        self._scratch = scratch
        self._check = check
        self._is_start = is_start
        self._token = secrets.token_hex(4)
        self._last = 0

    def write(self, saved: Saved, number: int) -> str:
        """Returns the path of the new checkpoint, which was read back."""
        self._last = number
        stem = f"state-{self._token}-{number}"
        directory = self._scratch.path / "write"
        try:
            path = Folder(directory, 1).write(saved, number)
            files = [
                self._upload(file, f"{stem}{file.suffix}") for file in sorted(directory.glob(f"{Path(path).name}.*"))
            ]
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        content = Manifest(number, self._is_start, tuple(files)).to_bytes()
        self._check()
        self._store.write(manifest_name(stem), content)
        if self._store.read(manifest_name(stem)) != content:
            raise RecoveryError(f"What is written must come back as it was.\nReceived: {self._store.path(stem)}.")
        self._remove_old()
        return self._store.path(stem)

    def read(self, path: str) -> Saved:
        """Returns one of those that are complete."""
        stem = path.rpartition("/")[2]
        manifest = parse_manifest(self._store.read(manifest_name(stem)))
        directory = self._scratch.path / "read"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for file in manifest.files:
                local = directory / f"state.{file.suffix}"
                self._store.download(f"{stem}.{file.suffix}", local)
                _compare(f"{path}.{file.suffix}", digest_file(local), file)
            saved = Folder(directory, 1).read(str(directory / "state"))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(
                "What a store holds is put together in the folder for temporary files of the chief's host.\n"
                f"Received: {str(directory)!r}: {error}. Make room there, or set TMPDIR."
            ) from error
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return dataclasses.replace(saved, path=path)

    def complete(self) -> list[str]:
        """The checkpoints that were written to their end, oldest first."""
        return [self._store.path(stem) for stem in complete(self._store.names())]

    def last_number(self) -> int:
        """The largest one in use; 0 for none."""
        # What this run has written counts also where a listing is late.
        return max(self._last, last_number(self._store.names()))

    def sweep(self) -> None:
        """Removes what a save left that did not come to its end."""
        self._remove(lambda: leftovers(self._store.names()))

    def delete(self) -> None:
        """Removes every checkpoint."""
        names = self._store.names()
        for name in [*names_of(complete(names), names), *leftovers(names)]:
            self._store.delete(name)

    def _upload(self, file: Path, name: str) -> StoredFile:
        num_bytes, sha256 = digest_file(file)
        self._store.upload(file, name)
        stored = StoredFile(file.suffix.removeprefix("."), num_bytes, sha256)
        _compare(self._store.path(name), self._store.digest(name), stored)
        return stored

    def _remove_old(self) -> None:
        def old() -> Sequence[str]:
            names = self._store.names()
            return names_of(complete(names)[: -self._keep], names)

        self._remove(old)

    def _remove(self, find: Callable[[], Sequence[str]]) -> None:
        try:
            for name in find():
                self._store.delete(name)
        except StoreError as error:
            # They are removed with the next ones.
            _log.warning("Old checkpoints could not be removed: %s", error)


def _compare(path: str, found: tuple[int, str], file: StoredFile) -> None:
    if found != (file.num_bytes, file.sha256):
        raise ValueError(f"{path} has {found[0]} bytes and another checksum than the {file.num_bytes} that were saved")
