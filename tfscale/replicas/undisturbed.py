"""How is something done to its end, though Ctrl-C comes in the midst of it?"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Lets Ctrl-C wait until what is inside has been done; a second one does not wait.

    Where variables are given values one by one, some would have the old ones. Python interrupts its main thread alone.

    Example:
        >>> import signal
        >>> done = []
        >>> try:
        ...     with undisturbed():
        ...         signal.raise_signal(signal.SIGINT)
        ...         done.append("all of it")
        ... except KeyboardInterrupt:
        ...     print(done)
        ['all of it']
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    heard: list[FrameType | None] = []

    def wait(number: int, frame: FrameType | None) -> None:
        heard.append(frame)
        if len(heard) > 1:
            before(number, frame)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if len(heard) == 1:
            before(signal.SIGINT, heard[0])
