"""Has the job ended well, after a restart or several?"""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tfscale.launch.group import Ending, run_group
from tfscale.launch.guard import Guard
from tfscale.launch.memory import count_kills, describe_kill
from tfscale.launch.screen import Relay, Screen, open_log
from tfscale.launch.signals import received_signals
from tfscale.launch.worker_plan import Worker

_NUM_SHOWN_LINES = 20


@dataclass(frozen=True)
class Job:
    """How a job ended.

    Args:
        status: The exit status of the launcher: 0, that of the first worker that failed, or 128 + the signal that
            ended it.
        starts: How often the workers were started.
        workers: Those of the last start.
        ending: How that one ended.
        told: What was said of its failure; empty where there was none.
    """

    status: int
    starts: int
    workers: tuple[Worker, ...]
    ending: Ending
    told: str = ""


def run_until_done(
    make_workers: Callable[[], Sequence[Worker]],
    environ: Mapping[str, str],
    max_restarts: int,
    log_dir: Path | None,
    stream: TextIO | None = None,
) -> Job:
    """Runs the workers, and all of them again when one fails.

    Args:
        make_workers: Returns the workers of the next attempt, on new ports where they are this launcher's to choose.
        environ: The environment that they inherit.
        max_restarts: Restarts before it gives up.
        log_dir: Where each worker's output is kept; None keeps none.
        stream: Where the workers' lines are shown; standard output by default.

    Raises:
        LaunchError: The directory cannot be written.
    """
    guard = Guard()
    workers: Sequence[Worker] = ()
    restarts = 0
    try:
        with received_signals() as signals:
            for restarts in range(max_restarts + 1):
                workers, kills = make_workers(), count_kills()
                screen = _make_screen(workers, sys.stdout if stream is None else stream)
                ending = run_group(
                    workers, environ, signals, guard, _relays(screen, log_dir, is_first_attempt=restarts == 0)
                )
                if ending.received is not None:
                    screen.say(f"stopped by {signal.Signals(ending.received).name}; no worker is left.")
                    return Job(128 + ending.received, restarts + 1, tuple(workers), ending)
                if ending.failed is None:
                    return Job(0, restarts + 1, tuple(workers), ending)
                told = _describe_failure(ending, count_kills() - kills)
                screen.say(told)
                if restarts < max_restarts:
                    screen.say(f"restart {restarts + 1} of {max_restarts}.")
        return Job(exit_status(ending.status), restarts + 1, tuple(workers), ending, told)
    except BrokenPipeError:
        return Job(128 + signal.SIGPIPE, restarts + 1, tuple(workers), Ending(received=signal.SIGPIPE))
    finally:
        guard.close()


def exit_status(status: int) -> int:
    """Returns what a shell makes of a status: 128 + its number for a signal."""
    return status if status >= 0 else 128 - status


def _describe_failure(ending: Ending, num_kills: int) -> str:
    worker, status = ending.failed, ending.status
    if worker is None:
        return ""
    how = f"exit status {status}" if status >= 0 else f"signal {_name_signal(-status)}"
    lines = [line.decode(errors="replace") for line in ending.last_lines[-_NUM_SHOWN_LINES:]]
    what = f"failed first, with {how}"
    if ending.has_left:
        what = f"left first, with exit status 0, while others needed it and failed with {status}"
    heading = f"worker {worker.rank} ({worker.address}) {what}; the others were stopped."
    # The kernel's own way; a status of 137 is how a shell says the same of what it ran.
    if status in (-signal.SIGKILL, 128 + signal.SIGKILL) and not ending.has_left:
        heading += f" {describe_kill(num_kills, ending.peak_bytes)}"
    if not lines:
        return f"{heading} It printed nothing."
    return "\n".join([f"{heading} Its last lines:", *(f"    {line}" for line in lines)])


def _name_signal(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else str(number)


def _make_screen(workers: Sequence[Worker], stream: TextIO) -> Screen:
    colour = stream.isatty() and "NO_COLOR" not in os.environ
    return Screen(len(str(workers[0].spec.num_workers - 1)), colour, stream)


def _relays(screen: Screen, log_dir: Path | None, *, is_first_attempt: bool) -> Callable[[Worker], Relay]:
    return lambda worker: Relay(worker.rank, screen, open_log(log_dir, worker.rank, anew=is_first_attempt))
