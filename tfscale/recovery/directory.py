"""Is this the directory of this run, and of no other one?"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfscale.errors import RecoveryError
from tfscale.recovery.decision import Settings
from tfscale.recovery.facts import check_facts
from tfscale.recovery.files import WAY_OUT, StateFiles, TakenError
from tfscale.recovery.folder import Saved
from tfscale.recovery.identity import find_differences
from tfscale.recovery.location import RemotePath
from tfscale.recovery.lock import DirectoryLock
from tfscale.recovery.remote import RemoteDirectory
from tfscale.recovery.store import StoreError
from tfscale.recovery.variables import RunVariables

_log = logging.getLogger(__name__)


class RunDirectory:
    """The directory of a run, as the chief sees it.

    Args:
        settings: What the user asked for.
    """

    def __init__(self, settings: Settings):
        self._settings = settings
        self._lock: DirectoryLock | RemoteDirectory
        if isinstance(settings.directory, RemotePath):
            self._lock = remote = RemoteDirectory(settings.directory, settings.keep, check=check_facts)
            self.files = remote.files
        else:
            self._lock = lock = DirectoryLock(settings.directory)
            self.files = StateFiles(
                settings.directory, settings.keep, look_first=lambda: self._refuse(lock.keep()), check=check_facts
            )
        """What is saved there."""

    def release(self) -> None:
        """Lets other runs in."""
        self._lock.release()

    def begin(
        self,
        variables: RunVariables,
        identity: dict[str, Any],
        global_batch: int | None,
        bring_back: Callable[[Path | RemotePath], None],
    ) -> Saved | None:
        """Keeps other runs out and returns the newest state of this one.

        That of another one is removed where this one may begin anew.

        Args:
            variables: Of this run.
            identity: What is the same for as long as a run is the same one.
            global_batch: Examples of a step.
            bring_back: Puts a newer state into the directory, where there is one elsewhere.

        Raises:
            RecoveryError: When another process uses the directory, it is that of another run, none can be read, or a
                store does not answer.
        """
        self._refuse(self._lock.take())
        bring_back(self._settings.directory)
        try:
            saved = self.files.read_newest()
            if saved is not None:
                variables.check(saved.facts["variables"], saved.path)
                _check_same_run(saved, identity, global_batch)
        except StoreError:
            # What it holds may be as good as ever.
            raise
        except RecoveryError as error:
            if not self._settings.restart:
                raise
            _log.warning("The run in %s begins anew. What was there is removed: %s", self._settings.directory, error)
            self.files.delete()
            return None
        return saved

    def _refuse(self, holder: str | None) -> None:
        if holder is not None:
            raise TakenError(
                "A directory belongs to one run at a time.\n"
                f"Received: {str(self._settings.directory)!r}, which {holder}. Let that one end, or give this run a "
                "directory of its own."
            )


def _check_same_run(saved: Saved, identity: dict[str, Any], global_batch: int | None) -> None:
    same_batch = saved.facts["global_batch"] == global_batch
    differences = find_differences(saved.facts.get("run", {}), identity, same_batch=same_batch)
    if differences:
        raise RecoveryError(
            "A directory belongs to one run: the same data, model and optimizer.\n"
            f"Received: {saved.path}, in which differ: {'; '.join(differences)}. Give this run a directory of its own, "
            f"go on with what was there, or begin anew in this one with {WAY_OUT}."
        )
