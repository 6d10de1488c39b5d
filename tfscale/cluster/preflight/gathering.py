"""What does the chief know of the other workers?"""

import contextlib
import logging
import selectors
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfscale.cluster.host_list import MAX_WORKERS
from tfscale.cluster.preflight.connection import Connection, ConnectionEndedError
from tfscale.cluster.preflight.facts import INFORM_ONLY, WORKERS, find_disagreements, read_facts
from tfscale.cluster.preflight.reasons import Reason
from tfscale.cluster.shown import printable
from tfscale.cluster.spec import ClusterSpec

_log = logging.getLogger(__name__)

# So that all are told, and all that differ are named.
_SETTLE_S = 1.0
_SHOWN = 5
_MAX_REASON = 300
_MAX_STOP = 1800
# Of processes that are no members, so many are told why the job ends.
_MAX_OTHERS = 8


class Gathering:
    """The workers that have come to the chief.

    Args:
        spec: The job; this worker is its chief.
        facts: The chief's.
        clock: Seconds, from anywhere.
    """

    def __init__(self, spec: ClusterSpec, facts: Mapping[str, str], clock: Callable[[], float]):
        self._spec = spec
        self._facts = facts
        self._clock = clock
        self._selector: selectors.BaseSelector | None = None
        self._disagreements: dict[int, list[tuple[str, str, str]]] = {}
        self._reach: dict[int, Mapping[str, str]] = {}
        self._others: list[Connection] = []
        self._closed: set[int] = set()
        self._closing = False
        self._has_informed = False
        self._trouble = ""
        self._trouble_s = 0.0
        self.members: dict[int, Connection] = {}
        self.late = False
        """Whether a worker's time is up."""

    @property
    def is_complete(self) -> bool:
        """Whether all are there, and each reaches all others."""
        ranks = set(range(self._spec.num_workers))
        reaching = {rank for rank, absent in self._reach.items() if not absent}
        return not self._disagreements and ranks == {0, *self.members} == reaching

    @property
    def is_closed(self) -> bool:
        """Whether nobody listens any more."""
        return self._closing and self._closed == self.members.keys()

    def admit(self, connection: Connection, greeting: Mapping[str, Any], selector: selectors.BaseSelector) -> None:
        """Takes in a worker that says who it is; nothing is kept of one that is not of this job."""
        rank, facts = greeting.get("rank"), read_facts(greeting.get("facts"))
        self._selector = selector
        if type(rank) is not int or facts is None or not isinstance(greeting.get("token"), str):
            connection.close()
            return
        found = find_disagreements(self._facts, facts)
        if not 0 <= rank < self._spec.num_workers:
            # A worker has such a rank only in another list.
            has_other_list = 0 <= rank < MAX_WORKERS and any(name == WORKERS for name, _, _ in found)
            if not has_other_list or not self._tell_later(connection):
                connection.close()
                return
            self._disagreements[rank] = found
            self._complain(self._describe_disagreements())
            return
        if rank in self.members or rank == 0:
            if not self._tell_later(connection):
                connection.close()
            self._complain(
                f"Every worker must have a rank of its own.\n"
                f"Received: two processes that say they are worker {rank}. Give one of them another rank, or end the "
                f"one of an earlier attempt."
            )
            return
        connection.expires_s = None
        differing = [each for each in found if each[0] not in INFORM_ONLY]
        if found and not differing:
            self._inform(rank, found)
        if differing:
            self._disagreements[rank] = differing
            self._complain(self._describe_disagreements())
        self.members[rank] = connection
        selector.register(connection.socket, selectors.EVENT_READ, lambda: self._on_message(rank, connection))

    def note_reach(self, rank: int, absent: Mapping[int, Reason]) -> None:
        """Notes whom a worker does not reach."""
        self._reach[rank] = {str(each): reason.text for each, reason in absent.items()}

    def trouble(self) -> str:
        """Returns why the job cannot start; nothing while it may, or while others may still come to be told."""
        if not self._trouble:
            return ""
        is_settled = self._clock() - self._trouble_s > _SETTLE_S
        return self._trouble if is_settled or len(self.members) >= self._spec.num_workers - 1 else ""

    def describe_unreached(self) -> str:
        """Returns the message for workers that are there but do not reach each other; nothing where all do."""
        lines = [
            f"worker {rank} ({self._spec.workers[rank]}) does not reach worker {other} "
            f"({self._spec.workers[int(other)]}): {text}"
            for rank, absent in self._reach.items()
            if rank in self.members
            for other, text in absent.items()
        ]
        if not lines:
            return ""
        return (
            f"Every worker must reach all others.\nReceived: {'; '.join(lines[:_SHOWN])}. "
            f"Check firewalls and host names between those hosts."
        )

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

    def _on_message(self, rank: int, connection: Connection) -> None:
        try:
            messages = connection.receive()
        except ConnectionEndedError:
            self._forget(rank, connection)
            return
        for message in messages:
            if isinstance(message.get("absent"), dict):
                self._reach[rank] = self._read_absent(message["absent"])
            elif isinstance(message.get("stop"), str):
                self._complain(printable(message["stop"], _MAX_STOP))
            elif message.get("closed"):
                self._closed.add(rank)
            elif message.get("late"):
                self.late = True

    def _read_absent(self, absent: Mapping[str, Any]) -> dict[str, str]:
        """Returns whom a worker misses, and why, as far as it makes sense; a few are enough for a message."""
        ranks = {str(each) for each in range(self._spec.num_workers)}
        known = [(other, text) for other, text in absent.items() if other in ranks and isinstance(text, str)]
        # None that is known, and yet somebody: it does not reach all.
        return {other: printable(text, _MAX_REASON) for other, text in known[:_SHOWN]} or dict.fromkeys(
            ["0"] if absent else [], "it does not say whom"
        )

    def _tell_later(self, connection: Connection) -> bool:
        """Keeps a process that is no member until the job ends; False where enough of them are kept."""
        if len(self._others) >= _MAX_OTHERS:
            return False
        connection.expires_s = None
        self._others.append(connection)
        return True

    def _forget(self, rank: int, connection: Connection) -> None:
        """A worker that leaves before all are there may come again: it is missing, no more."""
        if self._selector is not None:
            self._selector.unregister(connection.socket)
        connection.close()
        del self.members[rank]
        self._reach.pop(rank, None)
        if self._closing:
            self._complain(
                f"All workers must stay until training starts.\n"
                f"Received: worker {rank} ({self._spec.workers[rank]}) has left. Its own output says why."
            )
            self._trouble_s = 0.0

    def _complain(self, message: str) -> None:
        if not self._trouble:
            self._trouble_s = self._clock()
        if not self._trouble or self._disagreements:
            self._trouble = message

    def _describe_disagreements(self) -> str:
        workers = self._spec.workers
        lines = [
            f"{name}: {other} on worker {rank}{self._address(rank)}, {own} on worker 0 ({workers[0]})"
            for rank, differing in sorted(self._disagreements.items())
            for name, other, own in differing
        ]
        more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        return (
            f"All workers must agree before training starts.\nReceived: {'; '.join(lines[:_SHOWN])}{more}. "
            "Start every worker with the same command, settings and installed versions."
        )

    def _inform(self, rank: int, found: Sequence[tuple[str, str, str]]) -> None:
        """Says once what differs and may."""
        if not self._has_informed:
            self._has_informed = True
            told = ", ".join(f"{name} ({other}, here {own})" for name, other, own in found)
            _log.warning("worker %d%s, perhaps among others, has other %s", rank, self._address(rank), told)

    def _address(self, rank: int) -> str:
        return f" ({self._spec.workers[rank]})" if 0 <= rank < self._spec.num_workers else ""
