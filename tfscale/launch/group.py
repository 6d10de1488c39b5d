"""How did a group of workers end? One that fails, or a signal, ends them all."""

import contextlib
import dataclasses
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfscale.cluster.peer_failure import find_blamed
from tfscale.launch.guard import Guard
from tfscale.launch.process import Process
from tfscale.launch.screen import Relay
from tfscale.launch.signals import read_ending_signals
from tfscale.launch.worker_plan import Worker

# A TensorFlow worker that waits for a peer ignores SIGTERM. All are gone within 5 s of the first failure.
GRACE_S = 3.0

# Who sends SIGTERM to the launcher, as schedulers do, wants the run saved: workers come to a common step and write.
# Their own deadline is 25 s, and Slurm and Kubernetes kill after 30 s.
SAVE_GRACE_S = 27.0

# A worker whose peer failed is told so, and may be gone before that peer, which it names, has written its own error.
_SETTLE_S = 1.0


@dataclass(frozen=True)
class Ending:
    """How a group ended.

    Args:
        failed: The first worker that failed; None when none did.
        status: Its exit status, negative for a signal.
        last_lines: The end of its output.
        peak_bytes: The most memory that it had; 0 where that is not known.
        has_left: Whether it ended well, as it says, while others still needed it; `status` is theirs.
        received: The signal that the launcher got; None when it got none.
    """

    failed: Worker | None = None
    status: int = 0
    last_lines: tuple[bytes, ...] = ()
    peak_bytes: int = 0
    has_left: bool = False
    received: int | None = None


def run_group(
    workers: Sequence[Worker],
    environ: Mapping[str, str],
    signals: socket.socket,
    guard: Guard,
    make_relay: Callable[[Worker], Relay],
) -> Ending:
    """Runs the workers until all have ended; none is left, however this function ends.

    Args:
        workers: What to start.
        environ: The environment that they inherit.
        signals: Where the launcher's own signals are read; see `received_signals`.
        guard: Who ends them when the launcher cannot.
        make_relay: Returns where a worker's output goes.
    """
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as running:
        selector.register(signals, selectors.EVENT_READ)
        group = _Group(selector)
        running.callback(group.close)
        for worker in workers:
            group.add(Process(worker, environ, make_relay(worker), guard))
        while group.is_running:
            for key, _ in selector.select(group.timeout_s()):
                if isinstance(key.fileobj, Process):
                    group.read(key.fileobj)
                else:
                    for number in read_ending_signals(signals):
                        group.interrupt(number)
            group.check()
        return group.ending


class _Group:
    """The processes that run, and what becomes of them."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._processes: list[Process] = []
        self._open: set[Process] = set()
        self._blamed: int | None = None
        self._left: dict[int, Ending] = {}
        self._stop_at_s: float | None = None
        self._kill_at_s: float | None = None
        self.ending = Ending()

    @property
    def is_running(self) -> bool:
        return bool(self._processes)

    def add(self, process: Process) -> None:
        self._processes.append(process)
        self._open.add(process)
        self._selector.register(process, selectors.EVENT_READ)

    def timeout_s(self) -> float | None:
        """Seconds until the others are stopped, or the deaf killed; None waits for what comes first."""
        at_s = self._stop_at_s if self._kill_at_s is None else self._kill_at_s
        return None if at_s is None else max(0.0, at_s - time.monotonic())

    def read(self, process: Process) -> None:
        if not process.read():
            self._forget_output(process)

    def interrupt(self, number: int) -> None:
        """Passes the user's signal on; a second one does not wait any longer."""
        if self.ending.received is not None:
            self._signal_all(signal.SIGKILL)
        elif self._kill_at_s is None:
            self.ending = Ending(received=number)
            self._stop(number, SAVE_GRACE_S if number == signal.SIGTERM else GRACE_S)
        else:
            self.ending = Ending(received=number)

    def check(self) -> None:
        """Takes leave of the workers that have ended; the first failure stops the others."""
        ended = [(process, status) for process in self._processes if (status := process.poll()) is not None]
        for process, status in ended:
            self._forget_output(process)
            self._processes.remove(process)
            process.close()
            if status == 0:
                last_lines = tuple(process.relay.last_lines)
                self._left[process.worker.rank] = Ending(process.worker, 0, last_lines, has_left=True)
            elif self._kill_at_s is None:
                self._fail(process, status)
        if self._kill_at_s is None and self._stop_at_s is not None and time.monotonic() >= self._stop_at_s:
            self._stop(signal.SIGTERM)
        if self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
            self._signal_all(signal.SIGKILL)
            self._kill_at_s = time.monotonic() + GRACE_S

    def close(self) -> None:
        """Ends every process at once."""
        self._signal_all(signal.SIGKILL)
        with contextlib.ExitStack() as closing:
            for process in self._processes:
                closing.callback(process.close)

    def _fail(self, process: Process, status: int) -> None:
        """Takes the first failure, or that of the worker which the first one blames."""
        if self._blamed not in (None, process.worker.rank):
            return
        last_lines = tuple(process.relay.last_lines)
        self.ending = Ending(process.worker, status, last_lines, process.peak_bytes)
        blamed = find_blamed(line.decode(errors="replace") for line in last_lines)
        if blamed in self._left:
            self.ending = dataclasses.replace(self._left[blamed], status=status)
            self._stop(signal.SIGTERM)
        elif self._blamed is None and any(other.worker.rank == blamed for other in self._processes):
            # It is still there, and may have an error of its own to write.
            self._blamed = blamed
            self._stop_at_s = time.monotonic() + _SETTLE_S
        else:
            self._stop(signal.SIGTERM)

    def _stop(self, number: int, grace_s: float = GRACE_S) -> None:
        self._kill_at_s = time.monotonic() + grace_s
        self._signal_all(number)

    def _signal_all(self, number: int) -> None:
        for process in self._processes:
            process.signal_group(number)

    def _forget_output(self, process: Process) -> None:
        if process in self._open:
            self._open.remove(process)
            self._selector.unregister(process)
