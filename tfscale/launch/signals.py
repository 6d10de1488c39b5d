"""Which signals did the launcher get?"""

import contextlib
import signal
import socket
from collections.abc import Iterator

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def received_signals() -> Iterator[socket.socket]:
    """Turns signals into bytes of a socket, their numbers, for one loop to wait for; restores all at its end.

    SIGINT, SIGTERM and SIGHUP ask to end; SIGCHLD says that a worker has ended.
    """
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    # Under `nohup`, SIGHUP is ignored, and stays so.
    ending = [number for number in _ENDING if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _note) for number in (*ending, signal.SIGCHLD)}
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


def read_ending_signals(reader: socket.socket) -> list[int]:
    """Returns the signals that ask to end, since the last call."""
    with contextlib.suppress(BlockingIOError):
        return [number for number in reader.recv(4096) if number in _ENDING]
    return []


def _note(number: int, frame: object) -> None:
    """The number is in the socket already; Python writes it there as it calls this."""
