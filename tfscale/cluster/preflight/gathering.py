"""What does a worker know of those that report to it?"""

import contextlib
import selectors
from collections.abc import Callable
from typing import Any, NamedTuple

from tfscale.cluster.preflight.connection import Connection, ConnectionEndedError
from tfscale.cluster.preflight.layout import find_children
from tfscale.cluster.shown import printable
from tfscale.cluster.spec import ClusterSpec

# So that all are told, and all that differ are named.
_SETTLE_S = 1.0
_SHOWN = 5
_MAX_REASON = 300
_MAX_STOP = 1800
# Of processes that are no members, so many are told why the job ends.
_MAX_OTHERS = 8


class Miss(NamedTuple):
    """That a worker does not reach another.

    Args:
        rank: Of the worker.
        other: Of the other one.
        text: What was met.
    """

    rank: int
    other: int
    text: str


class Gathering:
    """The workers that have come to the one to which they report.

    Each says whom it and those below it do not reach; nobody, and all that report to it are there, is "ready".

    Args:
        spec: The job; the rank is that of the worker they report to.
        clock: Seconds, from anywhere.
        on_left: Called with the rank and the token of a process that has ended its connection.
    """

    def __init__(self, spec: ClusterSpec, clock: Callable[[], float], on_left: Callable[[int, str], None]):
        self._spec = spec
        self._clock = clock
        self._on_left = on_left
        self._selector: selectors.BaseSelector | None = None
        self._reports: dict[int, list[Miss]] = {}
        self._others: list[Connection] = []
        self._closed: set[int] = set()
        self._closing = False
        self._trouble = ""
        self._trouble_s = 0.0
        self.children = find_children(spec.rank, spec.num_workers)
        self.members: dict[int, Connection] = {}
        self.late = False
        """Whether a worker's time is up."""

    @property
    def is_ready(self) -> bool:
        """Whether all that report here are there, and ready."""
        return len(self.members) == len(self._reports) == len(self.children) and not any(self._reports.values())

    @property
    def is_closed(self) -> bool:
        """Whether none of them listens any more."""
        return self._closing and self._closed == self.members.keys() and len(self._closed) == len(self.children)

    @property
    def misses(self) -> list[Miss]:
        """Whom those that have come do not reach, as far as they say."""
        return [miss for report in self._reports.values() for miss in report]

    def report(self, own: list[Miss]) -> list[Miss]:
        """Returns what to say to the next above: a few are enough for a message, and none means ready.

        Args:
            own: Whom this worker does not reach.
        """
        found = own + self.misses
        if not found and not self.is_ready:
            awaited = [rank for rank in self.children if rank not in self._reports]
            found = [Miss(rank, self._spec.rank, "it has not come to it yet") for rank in awaited]
        return found[:_SHOWN]

    def admit(self, rank: int, token: str, connection: Connection, selector: selectors.BaseSelector) -> None:
        """Takes in one of those that report here."""
        self._selector = selector
        if rank in self.members or rank not in self.children:
            self.tell_later(connection)
            self.complain(
                f"Every worker must have a rank of its own.\n"
                f"Received: two processes that say they are worker {rank}. Give one of them another rank, or end the "
                f"one of an earlier attempt."
            )
            return
        connection.expires_s = None
        self.members[rank] = connection
        selector.register(connection.socket, selectors.EVENT_READ, lambda: self._on_message(rank, token, connection))

    def tell_later(self, connection: Connection) -> bool:
        """Keeps a process that is no member until the job ends; False, and ends it, where enough of them are kept."""
        if len(self._others) >= _MAX_OTHERS:
            connection.close()
            return False
        connection.expires_s = None
        self._others.append(connection)
        return True

    def complain(self, message: str, *, at_once: bool = False) -> None:
        """Notes why the job cannot start. What is noted first counts.

        Args:
            message: What to say.
            at_once: Whether there is nobody to wait for.
        """
        if not self._trouble:
            self._trouble, self._trouble_s = message, self._clock()
        if at_once:
            self._trouble_s = 0.0

    @property
    def has_trouble(self) -> bool:
        """Whether there is a reason why the job cannot start."""
        return bool(self._trouble)

    def trouble(self, *, are_all_there: bool) -> str:
        """Returns why the job cannot start; nothing while it may, or while others may still come to be told."""
        is_settled = are_all_there or self._clock() - self._trouble_s > _SETTLE_S
        return self._trouble if is_settled else ""

    def ask_to_close(self) -> None:
        """Has every worker give its port free."""
        self._closing = True
        self.send_all(close=True)

    def send_all(self, **message: Any) -> None:
        """Sends a message to every worker that is there."""
        for connection in (*self.members.values(), *self._others):
            with contextlib.suppress(ConnectionEndedError):
                connection.send(**message)

    def close(self) -> None:
        """Ends every connection."""
        for connection in (*self.members.values(), *self._others):
            connection.close()

    def _on_message(self, rank: int, token: str, connection: Connection) -> None:
        try:
            messages = connection.receive()
        except ConnectionEndedError:
            self._forget(rank, token, connection)
            return
        for message in messages:
            if "absent" in message:
                self._reports[rank] = self._read_report(rank, message["absent"])
            elif isinstance(message.get("stop"), str):
                self.complain(printable(message["stop"], _MAX_STOP))
            elif message.get("closed"):
                self._closed.add(rank)
            elif message.get("late"):
                self.late = True
            elif isinstance(message.get("left"), list):
                self._read_left(message["left"])

    def _read_report(self, rank: int, received: Any) -> list[Miss]:
        """Returns whom a worker and those below it miss, as far as it makes sense."""
        misses = []
        for each in received[:_SHOWN] if isinstance(received, list) else ():
            if isinstance(each, list) and len(each) == 3 and self._are_ranks(*each[:2]) and isinstance(each[2], str):
                misses.append(Miss(each[0], each[1], printable(each[2], _MAX_REASON)))
        # None that is known, and yet somebody: it is not ready.
        return misses if misses or received == [] else [Miss(rank, self._spec.rank, "it does not say whom")]

    def _read_left(self, received: list[Any]) -> None:
        if len(received) == 2 and self._are_ranks(received[0]) and isinstance(received[1], str):
            self._on_left(*received)

    def _are_ranks(self, *numbers: Any) -> bool:
        return all(type(each) is int and 0 <= each < self._spec.num_workers for each in numbers)

    def _forget(self, rank: int, token: str, connection: Connection) -> None:
        """A worker that leaves before all are there may come again: it is missing, no more."""
        if self._selector is not None:
            self._selector.unregister(connection.socket)
        connection.close()
        del self.members[rank]
        self._reports.pop(rank, None)
        if self._closing:
            self.complain(
                f"All workers must stay until training starts.\n"
                f"Received: worker {rank} ({self._spec.workers[rank]}) has left. Its own output says why.",
                at_once=True,
            )
        self._on_left(rank, token)
