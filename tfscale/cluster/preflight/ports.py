"""Is this worker's port free, and if not, who holds it?"""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tfscale.errors import ClusterError

# A worker of the same job that was killed a moment ago may not be gone yet.
_GRACE_S = 1.0
_INTERVAL_S = 0.05
_LISTENING = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


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
    """Returns who listens on a port of this host; nothing where the system does not tell (it is not Linux)."""
    found = []
    for table in _TABLES:
        with contextlib.suppress(OSError):
            found += parse_listeners(Path(table).read_text().splitlines(), port)
    owners = _find_owners({inode for _, inode in found})
    return [PortHolder(address, *owners.get(inode, (None, ""))) for address, inode in found]


def parse_listeners(lines: Iterable[str], port: int) -> list[tuple[str, str]]:
    """Returns address and inode of each socket that listens on a port, from the lines of `/proc/net/tcp` or `tcp6`.

    Example:
        >>> from tfscale.cluster.preflight.ports import parse_listeners
        >>> line = "0: 0100007F:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 4711 1"
        >>> parse_listeners([line], 2222)
        [('127.0.0.1:2222', '4711')]
    """
    found = []
    for line in lines:
        words = line.split()
        if len(words) < 10 or words[3] != _LISTENING:
            continue
        host, _, number = words[1].rpartition(":")
        if int(number, 16) == port:
            found.append((f"{_read_host(host)}:{port}", words[9]))
    return found


def _read_host(text: str) -> str:
    """Returns an address that is written as 32-bit numbers of this machine's byte order."""
    packed = b"".join(bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8))
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]"


def _find_owners(inodes: set[str]) -> dict[str, tuple[int, str]]:
    """Returns process and command line of each socket that a process of this user holds."""
    names = {f"socket:[{inode}]": inode for inode in inodes}
    owners: dict[str, tuple[int, str]] = {}
    for directory in Path("/proc").glob("[0-9]*") if names else ():
        # Processes end meanwhile, and others' files cannot be read.
        with contextlib.suppress(OSError):
            for descriptor in (directory / "fd").iterdir():
                with contextlib.suppress(OSError):
                    inode = names.get(os.readlink(descriptor))
                    if inode is not None:
                        command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        owners[inode] = (int(directory.name), command.strip()[:200])
    return owners
