"""What does the user see of the workers' output, and what is kept?"""

import os
import sys
from collections import deque
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO

from tfscale.errors import LaunchError

_NUM_LAST_LINES = 100
_MAX_LINE_BYTES = 1 << 16
_COLOURS = (36, 33, 35, 32, 34, 31)  # cyan, yellow, magenta, green, blue, red


class Lines(Protocol):
    """Where lines of several processes are shown."""

    def write_lines(self, rank: int, lines: list[bytes]) -> None:
        """Shows whole lines, without what ends them, of the process of a rank."""
        ...


class Screen:
    """The launcher's own streams: the workers' lines go to standard output, messages to standard error.

    Args:
        width: Digits of the largest rank.
        colour: Whether each rank has its colour.
        stream: Where the workers' lines go instead.
    """

    def __init__(self, width: int, colour: bool, stream: TextIO | None = None) -> None:
        self._width = width
        self._colour = colour
        self._stream = sys.stdout if stream is None else stream

    def write_lines(self, rank: int, lines: list[bytes]) -> None:
        """Writes whole lines of a worker, each after its rank."""
        prefix = f"[{rank:>{self._width}}] "
        if self._colour:
            prefix = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{prefix}\x1b[0m"
        try:
            self._stream.buffer.write(b"".join(prefix.encode() + line + b"\n" for line in lines))
            self._stream.buffer.flush()
        except BrokenPipeError:
            # Who read it is gone, as in `| head`. What is still to come, at the latest when Python exits, goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            raise

    def say(self, text: str) -> None:
        """Writes a message of the launcher."""
        sys.stderr.write(f"tfscale launch: {text}\n")
        sys.stderr.flush()


class Relay:
    """The output of one worker: prefixed to the screen, as it is to a file, its last lines kept.

    Args:
        rank: The worker's rank.
        screen: Where its lines are shown.
        log: The file that keeps its output; None keeps none.
    """

    def __init__(self, rank: int, screen: Lines, log: BinaryIO | None) -> None:
        self._rank = rank
        self._screen = screen
        self._log = log
        self._partial = b""
        self.last_lines: deque[bytes] = deque(maxlen=_NUM_LAST_LINES)

    def write(self, output: bytes) -> None:
        """Takes some of the worker's output; a line is shown when it is whole."""
        if self._log is not None:
            self._log.write(output)
            self._log.flush()
        *lines, self._partial = (self._partial + output).split(b"\n")
        if len(self._partial) > _MAX_LINE_BYTES:
            lines.append(self._partial)
            self._partial = b""
        self._show(lines)

    def close(self) -> None:
        """Shows what is left of a last line, and closes the file."""
        if self._log is not None:
            self._log.close()
        if self._partial:
            self._show([self._partial])
            self._partial = b""

    def _show(self, lines: list[bytes]) -> None:
        # A carriage return at the end would hide the prefix of the next line.
        lines = [line.rstrip(b"\r") for line in lines]
        self.last_lines.extend(lines)
        if lines:
            self._screen.write_lines(self._rank, lines)


def open_log(directory: Path | None, rank: int, *, anew: bool) -> BinaryIO | None:
    """Opens the file that keeps a worker's output; after a restart it is continued.

    Raises:
        LaunchError: The directory cannot be written.
    """
    if directory is None:
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return (directory / f"worker-{rank}.log").open("wb" if anew else "ab")
    except OSError as error:
        raise LaunchError(
            f"--log-dir must be a directory that can be written.\nReceived: {directory}: {error}. Name another one."
        ) from error
