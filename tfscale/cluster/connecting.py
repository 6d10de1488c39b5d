"""Who has met the others, and never connects?

TensorFlow's server waits for all workers, for an hour if need be, and holds Python's lock meanwhile: no thread of this
process could end that. So a process beside it looks at the clock. It runs this file, with the standard library alone.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

# It takes a second or two where all are there, and longer on a host that is busy.
LEAST_S = 30.0
# Beyond the limit, for who is missing to be found out and said.
_SAYING_S = 10.0
_KNOCK_S = 2.0
_AT_ONCE = 64


@contextlib.contextmanager
def connecting(workers: Sequence[str], rank: int, limit_s: float) -> Iterator[None]:
    """Ends this process with status 1, and an error that says who is missing, where workers do not connect in time.

    Args:
        workers: Addresses by rank.
        rank: Of this worker.
        limit_s: From when on, but not before half a minute.
    """
    limit_s = max(limit_s, LEAST_S)
    if not sys.executable:
        yield
        return
    told = json.dumps([list(workers), rank, limit_s]) + "\n"
    # Isolated, and without what a site adds: it starts in a few hundredths of a second.
    watcher = subprocess.Popen([sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    with watcher, open(os.devnull, "w") as nowhere:
        # One that could not start says nothing; the clock below ends this process all the same.
        with contextlib.suppress(BrokenPipeError):
            os.write(watcher.stdin.fileno(), told.encode())  # type: ignore[union-attr]
        # Its clock goes on without Python's lock.
        faulthandler.dump_traceback_later(limit_s + _SAYING_S, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def describe_missing(workers: Sequence[str], missing: Sequence[int], limit_s: float) -> str:
    """What is said of workers that have not connected.

    Args:
        workers: Addresses by rank.
        missing: Whose port refuses connections.
        limit_s: How long the others have waited.

    Example:
        >>> from tfscale.cluster.connecting import describe_missing
        >>> print(describe_missing(["10.0.0.6:2222", "10.0.0.7:2222"], [1], 120))
        tfscale.errors.ClusterError: All workers must take part in every step.
        Received: worker 1 (10.0.0.7:2222) has met the others, and has not connected to them in 120 s: its port \
refuses connections. Its own output, or its host's log, has the cause. Start all workers again.
    """
    if missing:
        who = f"worker {missing[0]} ({workers[missing[0]]})"
        others = f", like that of {len(missing) - 1} other(s)" if missing[1:] else ""
        said = f"{who} has met the others, and has not connected to them in {limit_s:g} s: its port refuses "
        said += f"connections{others}. Its own output, or its host's log, has the cause."
    else:
        said = f"one of {len(workers)} workers has met the others, and has not connected to them in {limit_s:g} s, "
        said += "though all ports take connections: it may be stopped, or its host is down. Look at each one's output."
    rule = "All workers must take part in every step."
    return f"tfscale.errors.ClusterError: {rule}\nReceived: {said} Start all workers again."


def _refuses(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S).close()
    except OSError as error:
        return error.errno == errno.ECONNREFUSED
    return False


def _watch() -> None:
    """Returns when the other process has connected or ended; else says who is missing."""
    line = b""
    while not line.endswith(b"\n"):
        if not (piece := os.read(0, 1 << 16)):
            return
        line += piece
    workers, rank, limit_s = json.loads(line)
    if select.select([0], [], [], limit_s)[0]:
        return
    deadline_s = time.monotonic() + _SAYING_S - 2 * _KNOCK_S
    others = [each for each in range(len(workers)) if each != rank]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda each: time.monotonic() < deadline_s and _refuses(workers[each]), others)
        missing = [each for each, refuses in zip(others, found, strict=True) if refuses]
    sys.stderr.write(describe_missing(workers, missing, limit_s) + "\n")


if __name__ == "__main__":
    _watch()
