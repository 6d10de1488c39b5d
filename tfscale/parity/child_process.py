"""How does a process that was started for one call begin, and how does it end?"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, NoReturn

from tfscale.parity.fork_server import wait_for_call


def take_call() -> Any:
    """Returns what this process was started for: its argument; without one it is a server, and each child's call."""
    if len(sys.argv) > 1:
        return sys.argv.pop()
    if threading.active_count() > 1:
        sys.exit("Something that is imported has started a thread: this process cannot be forked.")
    return wait_for_call()


def end_with_parent() -> None:
    """Has this process, and all it started, end when the process that started it is gone."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(0, signal.SIGKILL)


def end_process(status: int) -> NoReturn:
    """Ends this process. Not `sys.exit`: what TensorFlow's threads do at the end must not change the status."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
