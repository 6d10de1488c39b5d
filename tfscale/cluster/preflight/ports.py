"""Is this worker's port free, and if not, who holds it?"""

import errno
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tfscale.errors import ClusterError

# A worker of the same job that was killed a moment ago may not be gone yet.
_GRACE_S = 1.0
_INTERVAL_S = 0.05
_LISTENING = "LISTEN"
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class PortHolder:
    """Who listens on a port of this host.

    Args:
        address: Where, as `host:port`; "0.0.0.0" and "[::]" are every interface.
        pid: The process; None where it belongs to another user.
        command: Its command line; empty likewise.
    """

    address: str
    pid: int | None = None
    command: str = ""

    def __str__(self) -> str:
        if self.pid is None:
            return f"a process of another user, which listens on {self.address}"
        return f"process {self.pid} ({self.command}), which listens on {self.address}"


def listen(port: int, whose: str, backlog: int = 128, *, grace_s: float = _GRACE_S) -> socket.socket:
    """Returns a socket that listens where TensorFlow's server is going to: on every interface.

    Args:
        port: The port.
        whose: How a message names the worker that it belongs to.
        backlog: Connections that may wait to be accepted.
        grace_s: Seconds to wait for a port that is in use.

    Raises:
        ClusterError: The port is in use, or not this user's to take.
    """
    until_s = time.monotonic() + grace_s
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    while True:
        try:
            return socket.create_server(("", port), family=family, backlog=backlog, dualstack_ipv6=dual)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < until_s:
                time.sleep(_INTERVAL_S)
                continue
            raise ClusterError(_describe(error, port, whose)) from error


def _describe(error: OSError, port: int, whose: str) -> str:
    rule = f"Port {port} of this host must be free for {whose}."
    way_out = "give the job another port, in TF_CONFIG, TFSCALE_PORT or --hosts"
    if error.errno != errno.EADDRINUSE:
        return f"{rule}\nReceived: {error.strerror}. Choose a port from 1024 to 65535: {way_out}."
    holders = find_holders(port)
    if any(holder.pid == os.getpid() for holder in holders):
        return (
            f"{rule}\nReceived: this very process listens on {holders[0].address}, as it does once it trains in a "
            "cluster. Make the strategy once, and pass it on: DataParallel(devices=strategy)."
        )
    named = "; ".join(map(str, holders)) or "another process"
    return f"{rule}\nReceived: it is in use by {named}. Wait for that job or end it, or {way_out}."


def find_holders(port: int) -> list[PortHolder]:
    """Returns who listens on a port of this host; nothing where the system does not tell."""
    # Needed where something is in the way alone: `tfscale launch` and `import tfscale` start without it.
    import psutil

    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        # Outside of Linux it is told to root alone, in some containers to nobody.
        return []
    found = select_listeners(connections, port)
    return [PortHolder(address, pid, "" if pid is None else _read_command(pid)) for address, pid in found]


def select_listeners(connections: Iterable[Any], port: int) -> list[tuple[str, int | None]]:
    """Returns address and process of each socket that listens on a port, among those of `psutil.net_connections`.

    Example:
        >>> import socket
        >>> from types import SimpleNamespace
        >>> from tfscale.cluster.preflight.ports import select_listeners
        >>> address = SimpleNamespace(ip="127.0.0.1", port=2222)
        >>> listener = SimpleNamespace(family=socket.AF_INET, laddr=address, status="LISTEN", pid=4711)
        >>> select_listeners([listener], 2222)
        [('127.0.0.1:2222', 4711)]
    """
    return [
        (f"[{each.laddr.ip}]:{port}" if each.family == socket.AF_INET6 else f"{each.laddr.ip}:{port}", each.pid)
        for each in connections
        if each.status == _LISTENING and each.laddr.port == port
    ]


def _read_command(pid: int) -> str:
    """Returns the command line of a process; nothing where it has ended meanwhile, or may not be read."""
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except (psutil.Error, OSError):
        return ""
    # A message must be text that can be printed; arguments are bytes of any kind.
    return os.fsencode(" ".join(words)).decode(errors="replace").strip()[:_SHOWN_CHARACTERS]
