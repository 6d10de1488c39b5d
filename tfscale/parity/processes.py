"""Run groups of processes, a few at a time, each group within a deadline; leave none behind."""

import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfscale.launch.process_group import kill_group
from tfscale.parity.fork_server import ForkedProcess

_POLL_INTERVAL_S = 0.05


@dataclass(frozen=True)
class Command:
    """One process.

    Args:
        argv: Program and arguments.
        env: Its whole environment.
        log: The file that its output goes to.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path


Process = subprocess.Popen[bytes] | ForkedProcess
"""A running process."""


@dataclass(frozen=True)
class Ending:
    """How a group ended.

    Args:
        timed_out: Whether the deadline passed.
        statuses: Exit status of each process; negative for a signal, None when it had to be ended
            because another one failed or time was up.
    """

    timed_out: bool
    statuses: tuple[int | None, ...]

    @property
    def succeeded(self) -> bool:
        """Whether every process ended by itself with exit status 0."""
        return not self.timed_out and not any(status != 0 for status in self.statuses)


class _Group:
    """The running processes of one group."""

    def __init__(self, commands: Sequence[Command], timeout_s: float, start: Callable[[Command], Process]) -> None:
        self._processes: list[Process] = []
        try:
            for command in commands:
                self._processes.append(start(command))
        except BaseException:
            self.kill()
            raise
        # Starting the first one may take long: it imports for those after it.
        self._deadline_s = time.monotonic() + timeout_s

    def ending(self) -> Ending | None:
        """Returns how the group ended; None while it runs. A failure of one ends the group."""
        statuses = tuple(process.poll() for process in self._processes)
        timed_out = None in statuses and time.monotonic() > self._deadline_s
        if None in statuses and not timed_out and not any(statuses):
            return None
        return Ending(timed_out, statuses)

    def kill(self) -> None:
        """Ends every process and all that they started."""
        for process in self._processes:
            kill_group(process.pid)
            process.communicate()


def start_fresh(command: Command) -> Process:
    """Starts a process that has nothing of this one but the other end of its standard input."""
    with command.log.open("wb") as log:
        # The child reads the end of this pipe when its parent is gone, however it went.
        return subprocess.Popen(
            command.argv,
            env=dict(command.env),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def run_groups(
    groups: Sequence[Sequence[Command]],
    *,
    timeout_s: float,
    max_processes: int = 2,
    on_start: Callable[[int], None] = lambda index: None,
    on_look: Callable[[], None] = lambda: None,
    start: Callable[[Command], Process] = start_fresh,
) -> Generator[tuple[int, Ending], None, None]:
    """Runs groups of processes and yields (index of the group, how it ended) as they end.

    Closing the generator early, as an exception in the loop does under `contextlib.closing`, ends
    everything that still runs.

    Args:
        groups: The processes of each group; they run together.
        timeout_s: Seconds that a group may take.
        max_processes: Processes that run at the same time; a larger group runs alone.
        on_start: Called with the index of a group when it starts.
        on_look: Called each time that it is looked which have ended.
        start: Starts one process.
    """
    waiting = list(range(len(groups)))
    running: dict[int, _Group] = {}
    try:
        while waiting or running:
            busy = sum(len(groups[index]) for index in running)
            if waiting and (not running or busy + len(groups[waiting[0]]) <= max_processes):
                index = waiting.pop(0)
                on_start(index)
                running[index] = _Group(groups[index], timeout_s, start)
                continue
            on_look()
            ended = [(i, ending) for i, group in running.items() if (ending := group.ending())]
            for index, ending in ended:
                running.pop(index).kill()
                yield index, ending
            if not ended:
                time.sleep(_POLL_INTERVAL_S)
    finally:
        for group in running.values():
            group.kill()
