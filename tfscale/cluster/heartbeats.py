"""How far is each worker of the job, as the chief hears it?

Every worker tells the chief where it is, in a datagram every second or so, and the chief answers with its own place: a
lost one is made good by the next, and nobody waits for anybody.
"""

import contextlib
import json
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

_MAX_BYTES = 1024


@dataclass(frozen=True)
class Beat:
    """Where a worker is.

    Args:
        step: The training step that it is in, or was in last, from 1.
        arrived: Reductions that it has begun.
        left: Reductions that it has ended.
        waiting_s: Seconds since anything of this changed, while in a step; 0 outside of one.
    """

    step: int = 0
    arrived: int = 0
    left: int = 0
    waiting_s: float = 0.0


class Heartbeats:
    """One worker's end of it.

    Args:
        rank: Of this worker.
        num_workers: Of the job.
        clock: Seconds, from anywhere.

    Example:
        >>> from tfscale.cluster.heartbeats import Beat, Heartbeats
        >>> with Heartbeats(0, 1) as alone:
        ...     alone.exchange(Beat(step=1))
        ...     alone.beats
        {0: Beat(step=1, arrived=0, left=0, waiting_s=0.0)}
    """

    def __init__(self, rank: int, num_workers: int, clock: Callable[[], float] = time.monotonic):
        self.rank = rank
        self._num_workers = num_workers
        self._clock = clock
        self._start_s = clock()
        self._heard_s: dict[int, float] = {}
        self._token = 0
        self._socket: socket.socket | None = None
        self._chief: tuple[str, int] | None = None
        self.beats: dict[int, Beat] = {}
        """The last one of each worker that was heard of; of all on the chief, of itself and the chief elsewhere."""

    def __enter__(self) -> "Heartbeats":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def listen(self, token: int) -> int:
        """Opens a port on the chief, and returns it.

        Args:
            token: What the beats of this job begin with.
        """
        dual = socket.has_dualstack_ipv6()
        self._socket = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_DGRAM)
        if dual:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.setblocking(False)
        self._socket.bind(("", 0))
        self._token = token
        return int(self._socket.getsockname()[1])

    def connect(self, host: str, port: int, token: int) -> None:
        """Says where the chief listens."""
        self._chief, self._token = (host, port), token

    def silent_s(self, rank: int) -> float:
        """Seconds since a worker was last heard of."""
        return 0.0 if rank == self.rank else self._clock() - self._heard_s.get(rank, self._start_s)

    def exchange(self, own: Beat) -> None:
        """Sends this worker's beat, and takes what has come."""
        self.beats[self.rank] = own
        if self._num_workers == 1:
            return
        if self.rank > 0:
            self._send_to_chief(own)
        answered = set()
        while received := self._receive():
            rank, beat, sender = received
            if (rank == 0) != (self.rank > 0):
                continue
            self.beats[rank] = beat
            self._heard_s[rank] = self._clock()
            if self.rank == 0 and rank not in answered:
                answered.add(rank)
                self._send(own, sender)

    def close(self) -> None:
        """Gives the port free."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send_to_chief(self, own: Beat) -> None:
        if self._chief is None:
            return
        with contextlib.suppress(OSError, UnicodeError):
            family, _, _, _, address = socket.getaddrinfo(*self._chief, type=socket.SOCK_DGRAM)[0]
            if self._socket is None:
                self._socket = socket.socket(family, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._send(own, address)

    def _send(self, own: Beat, address: Any) -> None:
        message = json.dumps({"token": self._token, "rank": self.rank, **asdict(own)}).encode()
        if self._socket is not None:
            # A full buffer or an unreachable host: the next one comes in a second.
            with contextlib.suppress(OSError):
                self._socket.sendto(message, address)

    def _receive(self) -> tuple[int, Beat, Any] | None:
        """Returns rank, beat and sender of the next datagram that is one of this job; None when there is none."""
        while self._socket is not None:
            try:
                data, sender = self._socket.recvfrom(_MAX_BYTES)
            except BlockingIOError:
                return None
            except OSError:
                # What the system heard of an earlier one, such as "connection refused".
                continue
            found = parse_beat(data, self._token, self._num_workers)
            if found is not None:
                return (*found, sender)
        return None


def parse_beat(data: bytes, token: int, num_workers: int) -> tuple[int, Beat] | None:
    """Returns rank and beat of a datagram; None for anything else."""
    try:
        message = json.loads(data)
        rank = message["rank"]
        step, arrived, left = counts = [message[name] for name in ("step", "arrived", "left")]
        waiting_s = float(message["waiting_s"])
        is_right = message["token"] == token and all(type(each) is int and each >= 0 for each in [rank, *counts])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    return (rank, Beat(step, arrived, left, waiting_s)) if is_right and rank < num_workers and waiting_s >= 0 else None
