"""What befalls a job from outside: its files, its processes, its network, and strangers at its ports."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tests.chaos.schedule import Fault
from tests.processes import Case

# Linux: <linux/sockios.h>, <linux/if.h>.
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_VISIT_S = 0.05

GARBAGE = (
    b"",
    b"\x00\xff\n" * 10,
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 9,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 300,
    b"x" * 200_000,
    b"tfscale-meeting 2 hello " + b"0" * 32 + b"\n",
    b"tfscale-meeting 2 hello " + b"0" * 32 + b"\n" + b"0" * 64 + b' {"rank": 1, "token": "x", "facts": {}}\n',
    b"tfscale-meeting 2 refused secret\n",
    b'{"place": [0, 0, 0], "verdict": {"rank": 0, "why": "gone"}}',
    b"[" * 1200,
)


def damage(run: Path, fault: Fault) -> bool:
    """Damages the newest state in the directory of a run, or all; returns whether there was one."""
    rng = random.Random(fault.seed)
    indexes = sorted(run.rglob("state-*.index"), key=lambda path: int(path.stem.rpartition("-")[2]))
    if not indexes:
        return False
    newest = indexes[-1]
    [data] = newest.parent.glob(f"{newest.stem}.data-*")
    if fault.kind == "data cut short":
        os.truncate(data, rng.randrange(data.stat().st_size))
    elif fault.kind == "bytes changed":
        _change_bytes(rng.choice([data, newest]), rng)
    elif fault.kind == "index gone":
        newest.unlink()
    elif fault.kind == "note garbled":
        _garble(newest.parent / "checkpoint", rng)
    else:
        for index in indexes:
            index.write_bytes(b"")
    return True


def _change_bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 4)):
        content[rng.randrange(len(content))] ^= rng.randint(1, 255)
    path.write_bytes(content)


def _garble(note: Path, rng: random.Random) -> None:
    if not note.exists():
        return
    way = rng.randrange(4)
    if way == 0:
        note.write_bytes(b"")
    elif way == 1:
        note.write_bytes(rng.randbytes(100))
    elif way == 2:
        os.truncate(note, rng.randrange(note.stat().st_size))
    else:
        _change_bytes(note, rng)


@contextlib.contextmanager
def strangers(cases: Sequence[Case], seed: int) -> Iterator[list[int]]:
    """Somebody says garbage at the ports of all workers meanwhile, those of TCP and of UDP; yields how often he did."""
    is_over, count = threading.Event(), [0]

    def visit() -> None:
        rng = random.Random(seed)
        while not is_over.wait(_VISIT_S):
            case = rng.choice(list(cases))
            with contextlib.suppress(OSError, psutil.Error):
                _visit(case, rng)
                count[0] += 1

    thread = threading.Thread(target=visit, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        is_over.set()
        thread.join()


def _visit(case: Case, rng: random.Random) -> None:
    said = rng.choice([*GARBAGE, rng.randbytes(rng.randrange(1, 1400))])
    beats = [each.laddr for each in psutil.Process(case.pid).net_connections("udp") if each.laddr]
    if beats and rng.random() < 0.5:
        _, port = rng.choice(beats)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(said[:1400], ("127.0.0.1", port))
        return
    host, _, port = case.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=0.5) as caller:
        caller.sendall(said)
        if rng.random() < 0.3:
            caller.recv(100)


def set_network(*, is_up: bool) -> None:
    """Takes the loopback of this process's network down, or up again; for a network of its own only."""
    request = struct.Struct("16sh22x")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _, flags = request.unpack(fcntl.ioctl(control, _SIOCGIFFLAGS, request.pack(b"lo", 0)))
        flags = flags | _IFF_UP if is_up else flags & ~_IFF_UP
        fcntl.ioctl(control, _SIOCSIFFLAGS, request.pack(b"lo", flags))
