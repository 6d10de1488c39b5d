"""A process of its own that ends the workers when the launcher is killed and cannot.

It reads `+group` and `-group` lines, the process groups that start and end. The launcher's end, however it comes, ends
its input; what is left then is killed.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable


class Guard:
    """The launcher's side of the guard."""

    def __init__(self) -> None:
        # A session of its own: Ctrl-C and whoever kills the launcher's process group do not reach it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            text=True,
            bufsize=1,
        )

    def watch(self, group: int) -> None:
        """Takes charge of a process group."""
        self._write(f"+{group}\n")

    def release(self, group: int) -> None:
        """Forgets a process group that has ended: its number may be given to others."""
        self._write(f"-{group}\n")

    def close(self) -> None:
        """Ends the guard."""
        self._process.communicate()

    def _write(self, line: str) -> None:
        # Without the guard the launcher still ends its workers itself.
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(line)


def kill_what_is_left(lines: Iterable[str]) -> None:
    """Reads lines to their end, and kills every group that started and did not end."""
    groups: set[int] = set()
    for line in lines:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        # Not `process_group.signal_group`: this process imports nothing of tfscale, to be there at once.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    kill_what_is_left(sys.stdin)
