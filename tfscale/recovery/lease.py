"""Who uses a directory of a store at this moment?

Stores have no locks, and TensorFlow's file systems no way to create an object only where there is none. So the one who
uses a directory leaves a note there, `lock`, and changes it again and again. Best effort: two who begin within the same
two seconds may both see their own note last; the next look at it, before anything is saved, tells one of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfscale.errors import RecoveryError
from tfscale.recovery.location import RemotePath
from tfscale.recovery.lock import describe_holder
from tfscale.recovery.store import Store, StoreError, answer_within

_log = logging.getLogger(__name__)

_NAME = "lock"
# The tokens of the notes that this process renews.
_HELD: set[str] = set()


@dataclass(frozen=True)
class LeaseTimes:
    """All in seconds."""

    renew_s: float = 20.0
    """Between two changes of the note."""
    watch_s: float = 70.0
    """So long a note that does not change is watched, before it is taken for that of a dead process."""
    settle_s: float = 2.0
    """Between writing a note and looking whose is there."""
    old_s: float = 600.0
    """A note that is older is not watched; clocks of hosts differ by less."""
    answer_s: float = 30.0
    """So long the store may take for an answer."""


@dataclass(frozen=True)
class LeaseNote:
    """What is noted about a process."""

    host: str
    pid: int
    since: str
    token: str
    process: str
    """Tells processes with this number apart: one that is there and says another thing is not the one."""
    renewed_s: float
    """Seconds since 1970, by the clock of its host."""

    def to_bytes(self) -> bytes:
        """What is written."""
        return json.dumps(dataclasses.asdict(self)).encode()


def parse_note(content: bytes) -> LeaseNote:
    """Reads what `to_bytes` has made; anything else becomes the note of nobody who is known, watched as any other."""
    try:
        found = json.loads(content)
        texts = (str(found["host"]), int(found["pid"]), str(found["since"]), str(found["token"]), str(found["process"]))
        renewed_s = float(found["renewed_s"])
        if not math.isfinite(renewed_s) or not 0 < texts[1] < 2**31:
            raise ValueError
        return LeaseNote(*texts, renewed_s=renewed_s)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        # What it says becomes the token, so that a change is seen; it has no age.
        return LeaseNote("?", 0, "?", repr(content[:1000]), "?", math.inf)


def is_gone(note: LeaseNote, host: str, find_process: Callable[[int], str | None]) -> bool:
    """Whether the process of a note can be seen not to be there any more.

    Args:
        note: The note.
        host: This one.
        find_process: What tells a process of this host, given its number, from others; None where there is none.
    """
    mine = find_process(os.getpid())
    # In another container with this name, processes have other numbers.
    if note.host != host or mine is None or note.process.partition("/")[0] != mine.partition("/")[0]:
        return False
    found = find_process(note.pid)
    return found is None or (not found.endswith("/?") and found != note.process)


def find_process(pid: int) -> str | None:
    """Returns what tells a process from others that have had its number; None where there is none, or no /proc.

    The boot and the container and, behind a slash, when the process was started, "?" where that is not to be known.
    """
    # Not psutil's words: its `create_time` adds the time of the boot, by a clock that may be set meanwhile, so that two
    # processes are told different times of one start; its `pid_exists` says no of another user's that /proc hides.
    try:
        container = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None
    with contextlib.suppress(OSError, IndexError):
        # The name, in parentheses, may hold anything.
        return f"{container}/{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        # Another user's, hidden from this one.
        pass
    return f"{container}/?"


class DirectoryLease:
    """Keeps others out of a directory of a store, from `take` to `release`, as well as may be.

    Args:
        directory: The one.
        store: Its objects.
        times: How often, and how long.
    """

    def __init__(self, directory: RemotePath, store: Store, times: LeaseTimes | None = None):
        self._directory = directory
        self._store = store
        self._times = times or LeaseTimes()
        self._note: LeaseNote | None = None
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    def take(self) -> str | None:
        """Returns None, or the words for who has the directory.

        Raises:
            StoreError: When the store does not answer in time, or refuses.
        """
        there = self._look()
        if there is not None and not self._is_abandoned(there):
            return _describe(there)
        since = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        process = find_process(os.getpid()) or "?"
        note = LeaseNote(socket.gethostname(), os.getpid(), since, secrets.token_hex(8), process, time.time())
        self._ask(lambda: self._store.write(_NAME, note.to_bytes()))
        time.sleep(self._times.settle_s)
        there = self._look()
        if there is not None and there.token != note.token:
            return _describe(there)
        self._note = note
        _HELD.add(note.token)
        self._end.clear()
        self._thread = threading.Thread(target=self._renew, name="tfscale-recovery-lease", daemon=True)
        self._thread.start()
        return None

    def check(self) -> None:
        """Looks whether the directory is still that of this process.

        Raises:
            RecoveryError: When another one has it.
        """
        there = self._read()
        if self._note is not None and there is not None and there.token != self._note.token:
            raise RecoveryError(
                f"A directory belongs to one run at a time.\nReceived: {str(self._directory)!r}, which "
                f"{_describe(there)}, while "
                "this one could not be seen to live. Nothing more is saved by this one: end one of them."
            )

    def release(self) -> None:
        """Lets others in."""
        if self._note is None:
            return
        self._end.set()
        if self._thread is not None:
            self._thread.join(self._times.answer_s)
        with contextlib.suppress(RecoveryError):
            self._ask(self._remove)
        _HELD.discard(self._note.token)
        self._note = None

    def _remove(self) -> None:
        self.check()
        self._store.delete(_NAME)

    def _renew(self) -> None:
        note = self._note
        while note is not None and not self._end.wait(self._times.renew_s):
            try:
                self.check()
                # Where it was removed by hand, this process has the directory all the same.
                if not self._end.is_set():
                    self._store.write(_NAME, dataclasses.replace(note, renewed_s=time.time()).to_bytes())
            except StoreError as error:
                _log.debug("the lease was not renewed: %s", error)
            except RecoveryError as error:
                _log.error("%s", error)
                return

    def _is_abandoned(self, note: LeaseNote) -> bool:
        """Whether nobody renews a note, which may take a while to see."""
        process = find_process(note.pid)
        if note.host == socket.gethostname() and process is not None and process == note.process:
            # What this process could not remove from the store in the end, it has left all the same.
            return note.pid == os.getpid() and note.token not in _HELD
        if is_gone(note, socket.gethostname(), find_process) or time.time() - note.renewed_s > self._times.old_s:
            return True
        _log.warning(
            "%s %s. If that process is dead, this run goes on in %.0f s.",
            self._directory,
            _describe(note),
            self._times.watch_s,
        )
        end_s = time.monotonic() + self._times.watch_s
        while time.monotonic() < end_s:
            time.sleep(min(1.0, self._times.watch_s / 10))
            there = self._look()
            if there is None:
                return True
            if there != note:
                return False
        return True

    def _look(self) -> LeaseNote | None:
        return self._ask(self._read)

    def _ask(self, action: Callable[[], LeaseNote | None]) -> LeaseNote | None:
        return answer_within(self._times.answer_s, action, self._directory)

    def _read(self) -> LeaseNote | None:
        try:
            return parse_note(self._store.read(_NAME))
        except FileNotFoundError:
            return None


def _describe(note: LeaseNote) -> str:
    if note.token in _HELD:
        return "this very process has used in another `fit`, which has not ended"
    return describe_holder([note.host, note.pid, note.since])
