"""Which ports are free?"""

import contextlib
import socket
from collections.abc import Collection


def free_addresses(num_addresses: int, used: Collection[str] = ()) -> tuple[str, ...]:
    """Returns addresses `host:port` of this machine on which nothing listens now.

    Args:
        num_addresses: How many; they differ.
        used: Addresses not to return: a worker that was killed may not have left its port yet.

    Example:
        >>> from tfscale.launch.ports import free_addresses
        >>> len(set(free_addresses(3)))
        3
    """
    # All are held until the last is found, so that they differ. Another process may still take one;
    # there is no way to hand an open socket to TensorFlow.
    addresses: list[str] = []
    with contextlib.ExitStack() as sockets:
        while len(addresses) < num_addresses:
            held = sockets.enter_context(socket.socket())
            held.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{held.getsockname()[1]}"
            if address not in used:
                addresses.append(address)
    return tuple(addresses)
