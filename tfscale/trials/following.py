"""What do the processes of trials write while they run?"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from tfscale.launch.screen import Lines, Relay


class LogFollower:
    """Shows the lines of several logs as they come, each after the number of its trial.

    Args:
        screen: Where they are shown.
    """

    def __init__(self, screen: Lines):
        self._screen = screen
        self._open: dict[Path, tuple[BinaryIO, Relay]] = {}

    def begin(self, number: int, log: Path) -> None:
        """Follows a log, from the start: what was in it is gone.

        Args:
            number: Of the trial.
            log: Its file.
        """
        log.write_bytes(b"")
        self._open[log] = log.open("rb"), Relay(number, self._screen, None)

    def look(self) -> None:
        """Shows what has come to all of them."""
        for file, relay in self._open.values():
            relay.write(file.read())

    def end(self, log: Path) -> None:
        """Shows the rest of a log whose process has ended."""
        file, relay = self._open.pop(log)
        with file:
            relay.write(file.read())
        relay.close()

    def close(self) -> None:
        """Leaves those whose processes were ended."""
        for log in list(self._open):
            self.end(log)
