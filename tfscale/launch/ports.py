"""Which ports are free?"""

import contextlib
import socket
from collections.abc import Collection

_HELD = 200


def free_addresses(num_addresses: int, used: Collection[str] = (), host: str | None = None) -> tuple[str, ...]:
    """Returns addresses `host:port` of this machine on which nothing listens now.

    Args:
        num_addresses: How many; they differ.
        used: Addresses not to return: a worker that was killed may not have left its port yet.
        host: This machine, as others reach it: then the ports are free on all of its interfaces. By default
            127.0.0.1.

    Example:
        >>> from tfscale.launch.ports import free_addresses
        >>> len(set(free_addresses(3)))
        3
    """
    # Some are held while the next are looked for, so that the system does not name the same ones again and again; not
    # all, because a process may have few files open. Another process may still take one: there is no way to hand an
    # open socket to TensorFlow.
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    shown = f"[{host}]" if host and ":" in host else host or "127.0.0.1"
    addresses: dict[str, None] = {}
    while len(addresses) < num_addresses:
        with contextlib.ExitStack() as sockets:
            for _ in range(min(_HELD, num_addresses - len(addresses))):
                held = sockets.enter_context(socket.socket(family))
                held.bind(("" if host else "127.0.0.1", 0))
                address = f"{shown}:{held.getsockname()[1]}"
                if address not in used:
                    addresses[address] = None
    return tuple(addresses)
