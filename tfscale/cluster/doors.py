"""Which workers' ports still take connections?"""

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Mapping
from typing import cast

from tfscale.cluster.verdict import GONE, UNREACHABLE

_AT_ONCE = 256
_MEANS = {
    errno.ECONNREFUSED: GONE,
    errno.EHOSTUNREACH: UNREACHABLE,
    errno.ENETUNREACH: UNREACHABLE,
    errno.EHOSTDOWN: UNREACHABLE,
    errno.ETIMEDOUT: UNREACHABLE,
}


def knock(addresses: Mapping[int, str], timeout_s: float) -> dict[int, str]:
    """Returns whose port refuses a connection (`GONE`), or does not answer in time (`UNREACHABLE`); not the others.

    A process that is stopped has a port that answers: its system does.

    Args:
        addresses: `host:port` by rank.
        timeout_s: Seconds for all of them together; for every 256, where there are more.
    """
    found: dict[int, str] = {}
    ranks = list(addresses)
    for start in range(0, len(ranks), _AT_ONCE):
        deadline_s = time.monotonic() + timeout_s
        with contextlib.ExitStack() as doors, selectors.DefaultSelector() as selector:
            for rank in ranks[start : start + _AT_ONCE]:
                door = _ring(addresses[rank], found, rank)
                if door is not None:
                    selector.register(doors.enter_context(door), selectors.EVENT_WRITE, rank)
            while selector.get_map() and (left_s := deadline_s - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    error = cast("socket.socket", key.fileobj).getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if error in _MEANS:
                        found[key.data] = _MEANS[error]
                    selector.unregister(key.fileobj)
            found.update({key.data: UNREACHABLE for key in selector.get_map().values()})
    return found


def knock_again(addresses: Mapping[int, str], timeout_s: float, patience_s: float) -> dict[int, str]:
    """As `knock`, until somebody does not answer: of a process that was killed, ports close one after the other.

    Args:
        addresses: `host:port` by rank.
        timeout_s: Seconds for each time.
        patience_s: Seconds after which everybody counts as there.
    """
    until_s = time.monotonic() + patience_s
    while not (found := knock(addresses, timeout_s)) and time.monotonic() < until_s:
        time.sleep(0.1)
    return found


def _ring(address: str, found: dict[int, str], rank: int) -> socket.socket | None:
    """Begins to connect. A name that leads nowhere any more, as of a pod that was deleted, is noted at once."""
    host, _, port = address.rpartition(":")
    try:
        family, _, _, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        found[rank] = UNREACHABLE
        return None
    try:
        door = socket.socket(family, socket.SOCK_STREAM)
    except OSError:  # No file is left to open, which says nothing about the other worker.
        return None
    door.setblocking(False)
    error = door.connect_ex(where)
    if error in _MEANS:
        found[rank] = _MEANS[error]
        door.close()
        return None
    return door
