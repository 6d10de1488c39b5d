"""Which of the workers in a list of hosts run on this host?"""

import contextlib
import ipaddress
import socket
from collections.abc import Callable, Sequence

from tfscale.errors import LaunchError


def find_own_ranks(addresses: Sequence[str], is_own: Callable[[str], bool] | None = None) -> tuple[int, ...]:
    """Returns the ranks of the workers that run on this host.

    Args:
        addresses: One `host:port` per worker.
        is_own: Whether a host is this one; by default judged by its names and addresses.

    Raises:
        LaunchError: None does.
    """
    is_own = is_own or is_this_host
    ranks = tuple(rank for rank, address in enumerate(addresses) if is_own(host_of(address)))
    if not ranks:
        raise LaunchError(
            f"--hosts must list this host, or --rank must say which worker to start here.\n"
            f"Received: {', '.join(addresses)}; this host is {socket.gethostname()!r}. "
            f"Write its name as `hostname` prints it, or add --rank with the position of its worker, from 0."
        )
    return ranks


def same_host(addresses: Sequence[str], rank: int) -> tuple[int, ...]:
    """Returns the ranks of the workers on the host of one of them, that one included."""
    host = host_of(addresses[rank])
    return tuple(each for each, address in enumerate(addresses) if host_of(address) == host)


def host_of(address: str) -> str:
    """Returns the host of an address `host:port`, without the brackets of IPv6."""
    return address.rpartition(":")[0].strip("[]")


def is_this_host(host: str) -> bool:
    """Whether a name or an IP address is this host's. Asks no name server, which could take seconds."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        name = socket.gethostname()
        return host in (name, name.partition(".")[0], "localhost") or host.partition(".")[0] == name
    # A socket can be bound to the addresses of this host only.
    with socket.socket(socket.AF_INET6 if ip.version == 6 else socket.AF_INET) as probe, contextlib.suppress(OSError):
        probe.bind((host, 0))
        return True
    return False
