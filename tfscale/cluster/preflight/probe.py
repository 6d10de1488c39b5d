"""Can this worker reach another one, and is it the one it should be?"""

import errno
import math
import selectors
import socket
from collections.abc import Callable, Mapping
from typing import Any

from tfscale.cluster.preflight.connection import Connection, ConnectionEndedError
from tfscale.cluster.preflight.names import Lookup
from tfscale.cluster.preflight.reasons import (
    LOOKING_UP,
    NO_ANSWER,
    NOT_TRIED,
    SILENT,
    STRANGER,
    Reason,
    failed_connect,
    unknown_name,
)
from tfscale.cluster.secret import Secret

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_ATTEMPT_S = 5.0
_FORGET_NAME_S = 5.0
# Who answered wrongly for so long and is gone has found this worker wrong in turn, a moment earlier.
_SETTLED_WRONG_S = 1.5


class Probe:
    """One worker's attempts to reach another, until it answers.

    Args:
        address: Of the other worker, `host:port`.
        selector: Tells when the connection is ready; the data of its keys is the method to call.
        secret: The job's.
        greeting: What to say first.
        judge: Says of an answer why it is not the right one; None accepts it. Of a worker that has another secret it
            gets `has_secret` alone.
        clock: Seconds, from anywhere.
    """

    def __init__(
        self,
        address: str,
        selector: selectors.BaseSelector,
        secret: Secret,
        greeting: Mapping[str, Any],
        judge: Callable[[Mapping[str, Any]], Reason | None],
        clock: Callable[[], float],
    ):
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._selector = selector
        self._secret = secret
        self._greeting = greeting
        self._judge = judge
        self._clock = clock
        self._lookup: Lookup | None = None
        self._looked_up_s = 0.0
        self._attempts = 0
        self._next_s = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._wrong: tuple[float, Reason] | None = None
        self._is_taken = False
        self.connection: Connection | None = None
        """Open while it tries, and as long as the other side's answer is `kept`."""
        self.patience_s = _ATTEMPT_S
        """Seconds for the answer of a process that has taken the connection."""
        self.is_reached = False
        self.reason: Reason = NOT_TRIED
        self.keeps: Callable[[Mapping[str, Any]], None] | None = None
        """Where further messages go; None ends the connection with the answer."""
        self.lost: Callable[[], None] = lambda: None
        """Called when a connection that was kept has ended."""

    def try_now(self) -> None:
        """Does not wait until the next attempt is due: the other worker has been heard of."""
        self._next_s = 0.0

    @property
    def due_s(self) -> float:
        """When, as the clock counts, the next call of `tick` does anything."""
        if self.connection is not None:
            return math.inf if self.connection.expires_s is None else self.connection.expires_s
        if self.is_reached:
            return math.inf
        # A thread that looks up a name does not wake anybody.
        return self._next_s if self._lookup is None or self._lookup.is_done else self._clock() + _FIRST_PAUSE_S

    def wrong_for_s(self) -> float:
        """Seconds for which the wrong one has been answering."""
        return 0.0 if self._wrong is None else self._clock() - self._wrong[0]

    def tick(self) -> None:
        """Begins an attempt that is due, and ends one that takes too long."""
        now_s = self._clock()
        if self.connection is not None:
            if self.connection.expires_s is not None and now_s >= self.connection.expires_s:
                self._fail(SILENT if self._is_taken else NO_ANSWER)
            return
        if self.is_reached or now_s < self._next_s:
            return
        if self._lookup is None or (self._lookup.is_done and now_s - self._looked_up_s > _FORGET_NAME_S):
            self._lookup, self._looked_up_s = Lookup(self._host, self._port), now_s
        if not self._lookup.is_done:
            self._wait_for(LOOKING_UP)
        elif self._lookup.addresses:
            self._connect(now_s)
        else:
            self._fail(unknown_name(self._lookup.error))

    def end(self) -> None:
        """Ends the connection."""
        if self.connection is not None:
            self._selector.unregister(self.connection.socket)
            self.connection.close()
            self.connection = None

    def _connect(self, now_s: float) -> None:
        addresses = self._lookup.addresses if self._lookup else []
        family, address = addresses[self._attempts % len(addresses)]
        self._attempts += 1
        try:
            made = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            # No IPv6 here, for example, or no file descriptor left.
            self._fail(failed_connect(error.errno or errno.ENETUNREACH))
            return
        self._is_taken = False
        self.connection = Connection(made, self._secret, is_caller=True, expires_s=now_s + _ATTEMPT_S)
        self._selector.register(self.connection.socket, selectors.EVENT_WRITE, self._on_connected)
        number = self.connection.socket.connect_ex(address)
        if number not in (0, errno.EINPROGRESS):
            self._fail(failed_connect(number))

    def _on_connected(self) -> None:
        connection = self.connection
        if connection is None:
            return
        number = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._fail(failed_connect(number))
            return
        self._is_taken = True
        self._wait_for(SILENT)
        connection.expires_s = self._clock() + self.patience_s
        self._selector.modify(connection.socket, selectors.EVENT_READ, self._on_message)
        try:
            connection.send(**self._greeting)
        except ConnectionEndedError:
            self._fail(STRANGER)

    def _on_message(self) -> None:
        if self.connection is None:
            return
        try:
            messages = self.connection.receive()
        except ConnectionEndedError as error:
            self._lose(error)
            return
        for message in messages:
            if self.is_reached:
                if self.keeps is not None:
                    self.keeps(message)
            elif not self._accept(message):
                return

    def _accept(self, answer: Mapping[str, Any]) -> bool:
        reason = self._judge(answer)
        if reason is not None:
            self._fail(reason)
            return False
        self._wrong = None
        self.is_reached = True
        if self.keeps is None:
            self.end()
        elif self.connection is not None:
            self.connection.expires_s = None
        return self.keeps is not None

    def _lose(self, error: ConnectionEndedError) -> None:
        if self.is_reached:
            self.end()
            self.is_reached = False
            self._pause_s = _FIRST_PAUSE_S
            self.reason = failed_connect(errno.ECONNREFUSED)
            self.lost()
            return
        refused = None if error.has_secret is None else self._judge({"has_secret": error.has_secret})
        if refused is not None:
            self._fail(refused)
            return
        # A worker that leaves just now ends the connection, too.
        self._fail(STRANGER if error.is_stranger else Reason(str(error), failed_connect(errno.ECONNREFUSED).way_out))

    def _wait_for(self, reason: Reason) -> None:
        """Notes how far the attempt is; one that has said who it is not stays that until the attempt is over."""
        if self._wrong is None and self.reason is not STRANGER:
            self.reason = reason

    def _fail(self, reason: Reason) -> None:
        if self._wrong is not None and self.wrong_for_s() > _SETTLED_WRONG_S:
            # Whoever is there now, in another job perhaps, is not the one that was wrong.
            reason = self._wrong[1]
        elif reason.is_lasting:
            self._wrong = (self._clock() if self._wrong is None else self._wrong[0], reason)
        else:
            self._wrong = None
        self.end()
        self.reason = reason
        self._next_s = self._clock() + self._pause_s
        self._pause_s = min(self._pause_s * 1.5, _LONGEST_PAUSE_S)
