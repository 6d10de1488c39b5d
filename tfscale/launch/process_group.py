"""How is a process ended with all that it started, whatever state it is in?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def process_group(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process in a session and process group of its own, and ends the group at the end of the block.

    Args:
        argv: Program and arguments.
        **options: Others of `subprocess.Popen`.

    Yields:
        The process; how long it may take is the block's to say (`process.wait(timeout_s)`).

    Example:
        >>> import sys
        >>> from tfscale.launch.process_group import process_group
        >>> with process_group([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        ...     process.wait(60)
        3
    """
    with subprocess.Popen(argv, **options, start_new_session=True) as process:
        try:
            yield process
        finally:
            # Also when this process is interrupted.
            kill_group(process.pid)
            process.wait()


def kill_group(group: int) -> None:
    """Ends all processes of a group that are left, at once; whoever started them still has to wait for them.

    Args:
        group: Its number, that of the process which was started with a session of its own.
    """
    # SIGKILL, because a TensorFlow worker that waits for a peer ignores SIGTERM.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
