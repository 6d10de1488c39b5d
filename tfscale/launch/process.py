"""How is one worker started, and ended with all that it started?"""

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, cast

from tfscale.launch.guard import Guard
from tfscale.launch.limits import start_error
from tfscale.launch.process_group import kill_group, signal_group
from tfscale.launch.screen import Relay
from tfscale.launch.worker_plan import Worker

_PR_SET_PDEATHSIG = 1  # Linux, <sys/prctl.h>
# Linux counts in units of 1024 bytes, macOS in bytes.
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
_CHUNK_BYTES = 1 << 16
_MAX_PIPE_BYTES = 1 << 20


class Process:
    """A running worker, in a session and process group of its own.

    Args:
        worker: What to run.
        environ: The environment that its settings are added to.
        relay: Where its output goes.
        guard: Who ends it when the launcher cannot.

    Raises:
        LaunchError: The system does not start it.
    """

    def __init__(self, worker: Worker, environ: Mapping[str, str], relay: Relay, guard: Guard) -> None:
        self.worker = worker
        self.relay = relay
        self.peak_bytes = 0
        """The most memory that it had, once it has ended; 0 where that is not known."""
        self._guard = guard
        try:
            with _on_cores(worker.cores):
                self._process = subprocess.Popen(
                    worker.argv,
                    env={**environ, **worker.settings},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_death_signal(),
                )
        except OSError as error:
            relay.close()
            raise start_error(worker, error) from error
        guard.watch(self._process.pid)
        self._output = cast("IO[bytes]", self._process.stdout)
        os.set_blocking(self.fileno(), False)

    def fileno(self) -> int:
        """The end of the pipe that its output comes from."""
        return self._output.fileno()

    def read(self) -> bool:
        """Passes on what it wrote; returns False at the end of its output."""
        with contextlib.suppress(BlockingIOError):
            output = os.read(self.fileno(), _CHUNK_BYTES)
            self.relay.write(output)
            return bool(output)
        return True

    def poll(self) -> int | None:
        """Returns its exit status, negative for a signal; None while it runs."""
        if self._process.returncode is None:
            with contextlib.suppress(ChildProcessError):
                # As `Popen.poll`, which does not tell how much memory it had.
                pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
                if pid:
                    self._process.returncode = os.waitstatus_to_exitcode(status)
                    self.peak_bytes = usage.ru_maxrss * _MAXRSS_BYTES
        return self._process.poll()

    def signal_group(self, number: int) -> None:
        """Sends a signal to it and to all that it started."""
        signal_group(self._process.pid, number)

    def close(self) -> None:
        """Ends what is left of its group, and passes on the rest of its output."""
        kill_group(self._process.pid)
        self._process.wait()
        # What it wrote is in the pipe. A process that left the group may have the other end, and go on writing.
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MAX_PIPE_BYTES // _CHUNK_BYTES):
                self.relay.write(os.read(self.fileno(), _CHUNK_BYTES))
        self._output.close()
        self.relay.close()
        self._guard.release(self._process.pid)


@contextlib.contextmanager
def _on_cores(cores: Sequence[int] | None) -> Iterator[None]:
    """Moves this process to some cores for a while: what it starts meanwhile stays there."""
    if cores is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _death_signal() -> Callable[[], None] | None:
    """Returns what a child calls before its program starts, so that it ends with this process; Linux only.

    It ends the worker itself, at once; the guard ends what the worker started.
    """
    if sys.platform != "linux":
        return None
    # Loaded before the fork: the child does no more than two system calls. This process has one thread.
    return functools.partial(_end_with, os.getpid(), ctypes.CDLL(None).prctl)


def _end_with(parent: int, prctl: Callable[[int, int], int]) -> None:
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
