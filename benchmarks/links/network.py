"""Networks on one machine, and links between them whose rate can be set: two ends, or as many as there are workers.

Each worker leaves this machine's network for one of its own before TensorFlow starts, and sets up its end of the link
itself. Links and networks end with the workers. Who is not root needs user namespaces: the whole benchmark then runs
inside of one.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence

from tfscale.errors import LaunchError
from tfscale.launch.isolation import isolate_network

MOST_WORKERS = 8
ADDRESSES = tuple(f"10.77.0.{rank + 1}" for rank in range(MOST_WORKERS))
_SWITCH = "tfswitch"
_INSIDE = "TFSCALE_BENCH_INSIDE_NAMESPACE"
# The bucket holds a millisecond of the fastest link; packets wait up to 50 ms for it.
_BUCKET, _WAIT = "128kb", "50ms"
_TIMEOUT_S = 20.0


def obstacle() -> str | None:
    """Why there can be no such networks here, or None."""
    if sys.platform != "linux":
        return f"network namespaces are a feature of Linux, and this is {sys.platform}"
    missing = [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (packages iproute2 and util-linux)"
    bucket = f"tbf rate 1gbit burst {_BUCKET} latency {_WAIT}"
    trial = f"ip link add {_end(0)} type veth peer name {_end(1)} && tc qdisc add dev {_end(0)} root {bucket}"
    done = subprocess.run([*unshare(), "sh", "-c", trial], capture_output=True, text=True, timeout=_TIMEOUT_S)
    return None if done.returncode == 0 else done.stderr.strip() or "unshare failed"


def enter(module: str, arguments: Sequence[str]) -> None:
    """Runs `python -m module` once more in a network of its own, unless that is where this runs; returns there."""
    if _INSIDE not in os.environ:
        command = [*unshare(), sys.executable, "-m", module, *arguments]
        os.execvpe(command[0], command, os.environ | {_INSIDE: "1"})


def unshare() -> list[str]:
    """What a command begins with that is to have a network of its own."""
    return ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


def join(pids: Sequence[int]) -> None:
    """Puts the ends of new links into the networks of processes: one link between two, a switch for more."""
    if len(pids) == 2:
        _run("ip", "link", "add", _end(0), "type", "veth", "peer", "name", _end(1))
    else:
        _run("ip", "link", "add", _SWITCH, "type", "bridge")
        _run("ip", "link", "set", _SWITCH, "up")
        for rank in range(len(pids)):
            port = f"{_SWITCH}{rank}"
            _run("ip", "link", "add", _end(rank), "type", "veth", "peer", "name", port)
            _run("ip", "link", "set", port, "master", _SWITCH, "up")
    for rank, pid in enumerate(pids):
        _run("ip", "link", "set", _end(rank), "netns", str(pid))


def part() -> None:
    """Takes the switch and its links away, which nobody needs any more: what a network has ends some time after it."""
    for _, name in socket.if_nameindex():
        if name.startswith(_SWITCH):
            subprocess.run(["ip", "link", "delete", name], capture_output=True, timeout=_TIMEOUT_S)


def leave() -> None:
    """Moves this process, a worker, into a network of its own; it must have one thread.

    Raises:
        LaunchError: When the system does not allow it.
    """
    isolate_network()


def set_up(rank: int) -> None:
    """Gives this worker's end of the link its address."""
    _run("ip", "address", "add", f"{ADDRESSES[rank]}/24", "dev", _end(rank))
    _run("ip", "link", "set", _end(rank), "up")


def limit(rank: int, rate: str | None, bucket: str = _BUCKET) -> None:
    """Lets this worker send at most at `rate`, as `tc` writes it; None lifts the limit.

    A full bucket is sent at once, however slow the link is.
    """
    subprocess.run(["tc", "qdisc", "delete", "dev", _end(rank), "root"], capture_output=True, timeout=_TIMEOUT_S)
    if rate is not None:
        _run("tc", "qdisc", "add", "dev", _end(rank), "root", "tbf", "rate", rate, "burst", bucket, "latency", _WAIT)


def sent_bytes(rank: int) -> int:
    """What this worker has sent over the link, headers included.

    The token bucket counts what it lets through, with the headers of every packet. Without a bucket it is the network
    card's count, which takes up to 64 KB of packets for one: 4 % less.
    """
    shown = json.loads(_run("tc", "-s", "-j", "qdisc", "show", "dev", _end(rank)))
    for queue in shown:
        if queue.get("kind") == "tbf":
            return int(queue["bytes"])
    with open("/proc/self/net/dev") as lines:
        for line in lines:
            name, _, counters = line.partition(":")
            if name.strip() == _end(rank):
                return int(counters.split()[8])
    raise LaunchError(f"The link {_end(rank)} is gone.")


def _end(rank: int) -> str:
    return f"tfs{rank}"


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise LaunchError(f"{' '.join(command)} failed.\nReceived: {done.stderr.strip()}")
    return done.stdout
