"""How is a process ended with all that it started, whatever state it is in?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def process_group(
    argv: Sequence[str], *, timeout_s: float | None = None, **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Starts a process in a session and process group of its own, and ends the group at the end of the block.

    Args:
        argv: Program and arguments.
        timeout_s: Seconds after which the group is ended, whatever the block waits for: a line of its output, say.
            None where the block has a deadline of its own (`process.wait(timeout_s)`).
        **options: Others of `subprocess.Popen`.

    Yields:
        The process.

    Example:
        >>> import sys
        >>> from tfscale.launch.process_group import process_group
        >>> with process_group([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        ...     process.wait(60)
        3
    """
    with subprocess.Popen(argv, **options, start_new_session=True) as process:
        deadline = None if timeout_s is None else threading.Timer(timeout_s, kill_group, [process.pid])
        try:
            if deadline is not None:
                deadline.start()
            yield process
        finally:
            # Also when this process is interrupted.
            if deadline is not None:
                deadline.cancel()
                deadline.join()
            kill_group(process.pid)
            process.wait()


def kill_group(group: int) -> None:
    """Ends all processes of a group that are left, at once; whoever started them still has to wait for them.

    Args:
        group: Its number, that of the process which was started with a session of its own.
    """
    # SIGKILL, because a TensorFlow worker that waits for a peer ignores SIGTERM.
    signal_group(group, signal.SIGKILL)


def signal_group(group: int, number: int) -> None:
    """Sends a signal to all processes of a group that are left.

    Args:
        group: As for `kill_group`.
        number: Of the signal.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
