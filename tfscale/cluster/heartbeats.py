"""How far is each worker of the job, as the chief hears it?

Every worker tells the chief where it is, in a datagram every second or so, and the chief answers with its own place: a
lost one is made good by the next, and nobody waits for anybody. Each is signed and has a number: what comes from
somebody else, is of another `fit`, or is no newer than what has come, is not read.

In a large job they beat one after the other, and the chief takes several times a second what has come: Linux keeps some
257 of them for a socket, and drops the rest.
"""

import collections
import contextlib
import json
import math
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tfscale.cluster.passes import LabelsSeen, labels_to_wire, read_labels
from tfscale.cluster.place import Place, read_place, to_wire
from tfscale.cluster.secret import SIGNATURE_BYTES, Secret, is_signed, sign
from tfscale.cluster.verdict import Verdict, read_verdict, verdict_to_wire

_MAX_BYTES = 1400
_MAX_COUNT = 1 << 63
# Of one look: whoever sends without end must not keep the thread from its work.
_MAX_HEARD = 10_000
# Of one look, in a job of more workers: fewer than the system has room for.
_BEATS_AT_ONCE = 100
# What the system counts for one datagram.
_BEAT_BYTES = 1024
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Beat:
    """Where a worker is.

    Args:
        step: The training step that it is in, or was in last, from 1.
        arrived: Reductions that it has begun.
        left: Reductions that it has ended.
        waiting_s: Seconds since anything of this changed, while in a step; 0 outside of one.
        place: Where it is in its script.
        verdict: Because of whom it cannot go on; None where it can.
        labels: That it has read last of data whose labels are told.
    """

    step: int = 0
    arrived: int = 0
    left: int = 0
    waiting_s: float = 0.0
    place: Place = field(default_factory=Place)
    verdict: Verdict | None = None
    labels: LabelsSeen = field(default_factory=LabelsSeen)


def _payload(beat: Beat) -> dict[str, Any]:
    """What a datagram has of a beat."""
    counts = {name: getattr(beat, name) for name in ("step", "arrived", "left", "waiting_s")}
    told = {"verdict": verdict_to_wire(beat.verdict), "labels": labels_to_wire(beat.labels)}
    return {**counts, "place": to_wire(beat.place), **told}


class Heartbeats:
    """One worker's end of it.

    Args:
        rank: Of this worker.
        num_workers: Of the job.
        secret: Of the job.
        clock: Seconds, from anywhere.

    Example:
        >>> from tfscale.cluster.heartbeats import Beat, Heartbeats
        >>> from tfscale.cluster.secret import read_secret
        >>> with Heartbeats(0, 1, read_secret({}, ["localhost:2222"])) as alone:
        ...     alone.exchange(Beat(step=1))
        ...     alone.beats[0].step
        1
    """

    def __init__(self, rank: int, num_workers: int, secret: Secret, clock: Callable[[], float] = time.monotonic):
        self.rank = rank
        self._num_workers = num_workers
        self._secret = secret
        self._clock = clock
        self._start_s = clock()
        self._heard_s: dict[int, float] = {}
        self._key = b""
        self._num_sent = 0
        self._last: dict[int, int] = {}
        self._heard: collections.deque[tuple[bytes, Any]] = collections.deque(maxlen=_MAX_HEARD)
        self._has_waited = False
        self._socket: socket.socket | None = None
        self._chief: tuple[str, int] | None = None
        self._senders: dict[int, Any] = {}
        self.beats: dict[int, Beat] = {}
        """The last one of each worker that was heard of; of all on the chief, of itself and the chief elsewhere."""

    def __enter__(self) -> "Heartbeats":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def listen(self, token: int) -> int:
        """Opens a port on the chief, and returns it.

        Args:
            token: A random number of 62 bits, another one for each `fit`.
        """
        dual = socket.has_dualstack_ipv6()
        self._socket = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_DGRAM)
        if dual:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.setblocking(False)
        if self._num_workers > _BEATS_AT_ONCE:
            # The system may give less.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._num_workers * _BEAT_BYTES)
        self._socket.bind(("", 0))
        self._key = self._key_of(token)
        return int(self._socket.getsockname()[1])

    def connect(self, host: str, port: int, token: int) -> None:
        """Says where the chief listens."""
        self._chief, self._key = (host, port), self._key_of(token)

    def silent_s(self, rank: int) -> float:
        """Seconds since a worker was last heard of."""
        return 0.0 if rank == self.rank else self._clock() - self._heard_s.get(rank, self._start_s)

    def wait(self, is_over: threading.Event, beat_s: float) -> bool:
        """Returns after the time between two beats, or True when all is over.

        Args:
            is_over: Set when there is nothing more to wait for.
            beat_s: Seconds. The first time longer in a large job, for each worker by another part of them.
        """
        is_large = self._num_workers > _BEATS_AT_ONCE
        if is_large and self.rank > 0 and not self._has_waited and is_over.wait(self.rank * _GOLDEN % 1.0 * beat_s):
            return True
        self._has_waited = True
        num_looks = math.ceil(self._num_workers / _BEATS_AT_ONCE) if self.rank == 0 else 1
        for _ in range(num_looks):
            if is_over.wait(beat_s / num_looks):
                return True
            if is_large:
                self._take()
        return False

    def exchange(self, own: Beat) -> None:
        """Sends this worker's beat, and reads what has come."""
        self.beats[self.rank] = own
        if self._num_workers == 1:
            return
        if self.rank > 0:
            self._send_to_chief(own)
        answered = set()
        self._take()
        for _ in range(len(self._heard)):
            data, sender = self._heard.popleft()
            found = parse_beat(data, self._key, self._num_workers)
            # The chief hears of all others, and the others of the chief.
            if found is None or (found[0] == 0) != (self.rank > 0) or found[1] <= self._last.get(found[0], 0):
                continue
            rank, self._last[found[0]], beat = found
            self.beats[rank] = beat
            self._heard_s[rank] = self._clock()
            self._senders[rank] = sender
            if self.rank == 0 and rank not in answered:
                answered.add(rank)
                self._send(own, sender)

    def close(self) -> None:
        """Gives the port free. The chief, who only answers otherwise, tells all others its last beat before."""
        if self._socket is not None:
            if self.rank == 0 and self.rank in self.beats:
                for sender in self._senders.values():
                    self._send(self.beats[self.rank], sender)
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
        self._num_sent += 1
        body = json.dumps({"rank": self.rank, "number": self._num_sent, **_payload(own)}).encode()
        message = sign(self._key, body) + body
        if self._socket is not None:
            # A full buffer or an unreachable host: the next one comes in a second.
            with contextlib.suppress(OSError):
                self._socket.sendto(message, address)

    def _take(self) -> None:
        """Takes what has come out of the system's hands."""
        while len(self._heard) < _MAX_HEARD and (received := self._receive()) is not None:
            self._heard.append(received)

    def _receive(self) -> tuple[bytes, Any] | None:
        """Returns the next datagram and its sender; None when there is none."""
        try:
            return self._socket.recvfrom(_MAX_BYTES) if self._socket is not None else None
        except BlockingIOError:
            return None
        except OSError:
            # What the system heard of an earlier one, such as "connection refused".
            return b"", None

    def _key_of(self, token: int) -> bytes:
        return self._secret.derive("beats", token.to_bytes(8, "big"))


def parse_beat(data: bytes, key: bytes, num_workers: int) -> tuple[int, int, Beat] | None:
    """Returns rank, number and beat of a datagram; None for one that is not signed with the key, or says no beat."""
    signature, body = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
    if not is_signed(key, body, signature):
        return None
    try:
        message = json.loads(body)
        names = ("rank", "number", "step", "arrived", "left")
        rank, number, step, arrived, left = counts = [message[name] for name in names]
        waiting_s = float(message["waiting_s"])
        place = read_place(message["place"]) if "place" in message else Place()
        verdict = read_verdict(message.get("verdict", []), num_workers)
        labels = read_labels(message.get("labels", []))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    if not all(type(each) is int and 0 <= each < _MAX_COUNT for each in counts) or not 0 <= waiting_s < math.inf:
        return None
    beat = Beat(step, arrived, left, waiting_s, place, verdict, labels)
    return (rank, number, beat) if rank < num_workers else None
