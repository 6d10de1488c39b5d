"""How does the newest state of a run get to another host, and who has to hear of a save?"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import keras

from tfscale.recovery.files import STARTS
from tfscale.recovery.folder import Folder
from tfscale.recovery.location import RemotePath


class SaveWatcher(keras.callbacks.Callback):
    """A callback that takes part in the saves of the `Recovery` beside it: an engine starts workers again elsewhere.

    All workers call its methods equally often and at the same steps, but for `bring_back`.
    """

    def bring_back(self, directory: Path | RemotePath) -> None:
        """Puts a newer state into the directory, if the engine has one; called on the chief before it reads there."""

    def wants_save(self) -> bool:
        """Whether to save as soon as the state allows it; the same on all workers. Asked about once a second."""
        return False

    def on_save(self, directory: Path | RemotePath | None, steps: int) -> None:
        """Is told of a save.

        Args:
            directory: Where the chief has written; None on other workers, and where it could not be written.
            steps: Of the run.
        """


class SaveWatchers:
    """Those of one `fit`.

    Args:
        callbacks: All of that `fit`.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]):
        self._all = [each for each in callbacks if isinstance(each, SaveWatcher)]

    def __bool__(self) -> bool:
        return bool(self._all)

    def bring_back(self, directory: Path | RemotePath) -> None:
        """Lets each of them put a newer state there."""
        for each in self._all:
            each.bring_back(directory)

    def want_save(self) -> bool:
        """Whether one of them wants a save; all are asked, because each may ask all workers."""
        wanted = [each.wants_save() for each in self._all]
        return any(wanted)

    def tell(self, directory: Path | RemotePath | None, steps: int) -> None:
        """Tells all of a save."""
        for each in self._all:
            each.on_save(directory, steps)


def pack(directory: Path, target: Path) -> None:
    """Puts what a run needs to go on into a new folder: its newest state, and the newest of a start of an epoch.

    Args:
        directory: Of a `Recovery` that does not write now.
        target: Made anew; on the same file system nothing is copied.
    """
    shutil.rmtree(target, ignore_errors=True)
    newest = [(folder.complete() or [""])[-1] for folder in _folders(directory)]
    within, start = (Path(path) for path in newest)
    for path in {start, within} - {Path()}:
        if path == within and _number(start) > _number(within):
            # Older than the start of the epoch that the run is in.
            continue
        into = target / path.parent.relative_to(directory)
        into.mkdir(parents=True, exist_ok=True)
        for file in path.parent.glob(f"{path.name}.*"):
            _link(file, into / file.name)


def unpack(source: Path, directory: Path) -> bool:
    """Puts what was packed into the directory of a run, where that has nothing as new; returns whether it was so.

    A kill at any moment leaves what was there, and at worst files that nobody reads.
    """
    if _last_number(source) <= _last_number(directory):
        return False
    for part in (Path(), Path(STARTS)):
        # A checkpoint counts when its index is there: that comes last.
        for file in sorted((source / part).glob("state-*"), key=lambda path: path.suffix == ".index"):
            into = directory / part
            into.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, into / "arriving.partial")
            (into / "arriving.partial").replace(into / file.name)
        # TensorFlow's note names older ones only; without it all are looked for.
        (directory / part / "checkpoint").unlink(missing_ok=True)
    return True


def _folders(directory: Path) -> tuple[Folder, Folder]:
    return Folder(directory, 1), Folder(directory / STARTS, 1)


def _last_number(directory: Path) -> int:
    return max(folder.last_number() for folder in _folders(directory))


def _number(path: Path) -> int:
    return int(path.name.rpartition("-")[2] or 0)


def _link(file: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        os.link(file, target)
        return
    shutil.copyfile(file, target)
