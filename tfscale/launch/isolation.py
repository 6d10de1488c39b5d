"""How do the workers get a network of their own?

TensorFlow's server listens on every interface, without a password. In a network namespace there is one interface, the
loopback, and nobody but the workers.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

from tfscale.errors import LaunchError

# Linux: <linux/sched.h>, <linux/sockios.h>, <linux/if.h>.
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def isolate_network() -> None:
    """Moves this process, and what it starts from now on, into a network of its own.

    It must have one thread. Its user stays the same.

    Raises:
        LaunchError: The system does not allow it.
    """
    if sys.platform != "linux":
        raise _refusal(f"the system {sys.platform}")
    try:
        _leave_network()
        _start_loopback()
    except OSError as error:
        raise _refusal(str(error)) from error


def _leave_network() -> None:
    try:
        _unshare(_CLONE_NEWNET)
    except PermissionError:
        # Who is not root may do it as the root of a user namespace, in which the same user is mapped to itself.
        user, group = os.geteuid(), os.getegid()
        _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _unshare(flags: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _start_loopback() -> None:
    request = struct.Struct("16sh22x")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _, flags = request.unpack(fcntl.ioctl(control, _SIOCGIFFLAGS, request.pack(b"lo", 0)))
        fcntl.ioctl(control, _SIOCSIFFLAGS, request.pack(b"lo", flags | _IFF_UP))


def _refusal(received: str) -> LaunchError:
    return LaunchError(
        f"--isolate-network needs a Linux system that lets its users make network namespaces.\n"
        f"Received: {received}. Leave the flag out and close the workers' ports with a firewall, or run in a container."
    )
