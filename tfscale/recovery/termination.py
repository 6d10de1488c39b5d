"""Was this process asked to end, and by when must it have?"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from typing import Any

# Schedulers kill about 30 s after they have asked: Kubernetes and Slurm by default.
DEADLINE_S = 25.0
EXIT_STATUS = 128 + signal.SIGTERM
_TOO_LATE = (
    f"no step ended within {{:g}} s of SIGTERM, another worker may be gone. Exit with status {EXIT_STATUS}; the newest "
    "checkpoint is the last one that was announced."
)


class Termination:
    """Notes SIGTERM, and ends the process if nobody else does within a deadline.

    Python runs a signal's handler between two of its own instructions: never, while the main thread waits in a
    collective for a worker that is gone. The number of the signal is therefore read from a socket by a thread.

    A script's own handler stays where it is, and then nothing is done here. What the process forks goes without.

    Args:
        deadline_s: Seconds from the signal to the end.
        farewell: What is written at that end.
    """

    def __init__(self, deadline_s: float = DEADLINE_S, farewell: str = _TOO_LATE):
        self._deadline_s = deadline_s
        self._farewell = farewell
        self._requested = threading.Event()
        self._over = threading.Event()
        self._restore: Any = None

    @property
    def requested(self) -> bool:
        """Whether SIGTERM came."""
        return self._requested.is_set()

    def start(self) -> None:
        """Begins to listen; only the main thread can."""
        if self._restore or threading.current_thread() is not threading.main_thread():
            return
        if self is not _AT_ONCE:
            _AT_ONCE.stop()
        before = signal.getsignal(signal.SIGTERM)
        if before not in (signal.SIG_DFL, None):
            return
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if wakeup != -1:
            # An event loop listens already; the handler alone has to do.
            signal.set_wakeup_fd(wakeup)
        self._over.clear()
        signal.signal(signal.SIGTERM, self._note)
        thread = threading.Thread(target=self._watch, args=(reader,), name="tfscale-sigterm", daemon=True)
        thread.start()
        self._restore = (before, wakeup, reader, writer, thread)
        _LISTENING.append(self)

    def forget(self) -> None:
        """Undoes it in a process that was forked: its SIGTERM is not its parent's."""
        if self._restore is not None:
            *_, reader, writer, _ = self._restore
            self._restore = None
            signal.set_wakeup_fd(-1)
            reader.close()
            writer.close()
        if signal.getsignal(signal.SIGTERM) == self._note:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def reached(self) -> None:
        """Lifts the deadline: the workers have agreed, and what is left takes its time."""
        self._over.set()

    def stop(self) -> None:
        """Puts everything back."""
        if self._restore is None:
            return
        before, wakeup, reader, writer, thread = self._restore
        self._restore = None
        _LISTENING.remove(self)
        self._over.set()
        if signal.getsignal(signal.SIGTERM) == self._note:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
        if wakeup == -1:
            signal.set_wakeup_fd(-1)
        # For the thread it is the end, also where a process that was forked has a copy of it.
        writer.shutdown(socket.SHUT_WR)
        thread.join()
        writer.close()
        reader.close()
        if self is not _AT_ONCE:
            end_first_process_at_once()

    def _note(self, number: int, frame: Any) -> None:
        del number, frame
        self._requested.set()

    def _watch(self, reader: socket.socket) -> None:
        """Reads signals until `stop` closes the other end."""
        while True:
            timeout_s = self._deadline_s if self.requested else None
            if not select.select([reader], [], [], timeout_s)[0]:
                self._end()
            received = reader.recv(64)
            if not received:
                return
            # Who has put a handler of his own in the place of this one decides himself.
            if signal.SIGTERM in received and signal.getsignal(signal.SIGTERM) == self._note:
                self._requested.set()

    def _end(self) -> None:
        if self._over.is_set():
            return
        sys.stderr.write(f"tfscale: {self._farewell.format(self._deadline_s)}\n")
        sys.stderr.flush()
        os._exit(EXIT_STATUS)


_LISTENING: list[Termination] = []
_AT_ONCE = Termination(0.0, f"SIGTERM, and nothing here saves the run. Exit with status {EXIT_STATUS}.")


def end_first_process_at_once() -> None:
    """Has SIGTERM end this process if it is the first one of a container, for which it does nothing by itself.

    What saves on SIGTERM, or a handler of the script's own, goes before.
    """
    if os.getpid() == 1:
        _AT_ONCE.start()


def _forget() -> None:
    while _LISTENING:
        _LISTENING.pop().forget()


os.register_at_fork(after_in_child=_forget)
