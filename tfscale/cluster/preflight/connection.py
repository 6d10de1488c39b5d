"""How do two workers exchange short messages, when either may be a stranger that writes rubbish or nothing?"""

import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any

# A message that two workers send each other is far smaller; what is longer comes from somebody else.
MAX_MESSAGE_BYTES = 16_384
_MARK = "tfscale-preflight"
_VERSION = 1


class ConnectionEndedError(Exception):
    """The other side has ended the connection, or sent what is no message."""

    def __init__(self, reason: str, *, is_stranger: bool = False):
        super().__init__(reason)
        self.is_stranger = is_stranger


class Connection:
    """A connected socket that carries one JSON object per line and never waits.

    Args:
        connected: The socket; it becomes non-blocking.
        expires_s: When it is to be given up, as the meeting's clock counts; None for never.
    """

    def __init__(self, connected: socket.socket, expires_s: float | None = None):
        connected.setblocking(False)
        self.socket = connected
        self.expires_s = expires_s
        self._received = b""

    def send(self, **message: Any) -> None:
        """Sends a message.

        Raises:
            ConnectionEndedError: Nobody takes it.
        """
        line = json.dumps({_MARK: _VERSION, **message}).encode() + b"\n"
        try:
            sent = self.socket.send(line)
        except OSError as error:
            raise ConnectionEndedError(error.strerror or str(error)) from error
        # The system's buffer has room for many: who lets it fill does not read.
        if sent < len(line):
            raise ConnectionEndedError("it does not read what it is sent")

    def receive(self) -> list[Mapping[str, Any]]:
        """Returns the messages that have arrived, perhaps none.

        Raises:
            ConnectionEndedError: There will be no more.
        """
        try:
            chunk = self.socket.recv(MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ConnectionEndedError(error.strerror or str(error)) from error
        if not chunk:
            raise ConnectionEndedError("it ended the connection", is_stranger=bool(self._received))
        *lines, self._received = (self._received + chunk).split(b"\n")
        if max(map(len, [*lines, self._received])) > MAX_MESSAGE_BYTES:
            raise ConnectionEndedError("it sent more than a message", is_stranger=True)
        return [_parse(line) for line in lines]

    def close(self) -> None:
        """Ends the connection."""
        with contextlib.suppress(OSError):
            self.socket.close()


def _parse(line: bytes) -> Mapping[str, Any]:
    try:
        message = json.loads(line)
    # The parser recurses once per level of nesting.
    except (ValueError, RecursionError) as error:
        raise ConnectionEndedError("it sent what is no message", is_stranger=True) from error
    if not isinstance(message, dict) or message.get(_MARK) != _VERSION:
        raise ConnectionEndedError("it sent what is no message of this version", is_stranger=True)
    return message
