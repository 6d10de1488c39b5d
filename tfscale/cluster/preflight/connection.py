"""How do two workers exchange short messages, when either may be a stranger that writes rubbish, or worse, or nothing?

Who calls and who is called first tell each other a random number. Every message after that is signed, with a key that
follows from the job's secret and both numbers, and with its place in the order of messages: what was recorded on
another connection, is sent again, or comes from who does not know the secret ends the connection, before any of it is
read. Who is called says nothing that is signed before the caller has shown that he knows the secret.
"""

import contextlib
import json
import os
import re
import socket
from collections.abc import Mapping
from typing import Any

from tfscale.cluster.secret import SIGNATURE_BYTES, Secret, is_signed, sign

# A message that two workers send each other is far smaller; what is longer comes from somebody else.
MAX_MESSAGE_BYTES = 16_384
_MARK = b"tfscale-meeting 2"
_HELLO = re.compile(rb"%s hello ([0-9a-f]{32})" % _MARK)
_REFUSAL = re.compile(rb"%s refused (secret|none)" % _MARK)
_SIGNED = re.compile(rb"([0-9a-f]{%d}) (.*)" % (2 * SIGNATURE_BYTES), re.DOTALL)


class ConnectionEndedError(Exception):
    """The other side has ended the connection, or sent what is no message.

    Args:
        reason: What happened.
        is_stranger: Whether the other side is no worker.
        has_secret: Where it is one that refused this worker: whether it was given a secret. Anybody may say so.
    """

    def __init__(self, reason: str, *, is_stranger: bool = False, has_secret: bool | None = None):
        super().__init__(reason)
        self.is_stranger = is_stranger
        self.has_secret = has_secret


class Connection:
    """A connected socket that carries one signed JSON object per line and never waits.

    Args:
        connected: The socket; it becomes non-blocking.
        secret: The job's.
        is_caller: Whether this side made the connection; its first message goes when the other side has said hello.
        expires_s: When it is to be given up, as the meeting's clock counts; None for never.
    """

    def __init__(
        self, connected: socket.socket, secret: Secret, *, is_caller: bool = False, expires_s: float | None = None
    ):
        connected.setblocking(False)
        self.socket = connected
        self.expires_s = expires_s
        self._secret = secret
        self._is_caller = is_caller
        self._nonce = os.urandom(16).hex().encode()
        self._has_greeted = False
        # Of what this side signs, and of what the other one does; None until both have said hello.
        self._keys: tuple[bytes, bytes] | None = None
        self._num_sent = self._num_received = 0
        self._unsent: list[Mapping[str, Any]] = []
        self._received = b""

    def send(self, **message: Any) -> None:
        """Sends a message; the caller's first ones wait for the hello of the other side.

        Raises:
            ConnectionEndedError: Nobody takes it.
        """
        if self._keys is None:
            self._unsent.append(message)
            self._greet()
            return
        # What is no character, as a name of a file may hold, is written as JSON writes it.
        body = json.dumps(message, ensure_ascii=False).encode(errors="backslashreplace")
        signature = sign(self._keys[0], _numbered(self._num_sent, body))
        self._num_sent += 1
        self._write(signature.hex().encode() + b" " + body)

    def receive(self) -> list[Mapping[str, Any]]:
        """Returns the messages that have arrived, perhaps none. All are signed with the job's secret.

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
        return [message for line in lines if (message := self._read(line)) is not None]

    def close(self) -> None:
        """Ends the connection."""
        with contextlib.suppress(OSError):
            self.socket.close()

    def _read(self, line: bytes) -> Mapping[str, Any] | None:
        """Returns the message of a line; None where it was a hello."""
        refusal = _REFUSAL.fullmatch(line) if self._is_caller and not self._num_received else None
        if refusal is not None:
            raise ConnectionEndedError("it has another secret", has_secret=refusal[1] == b"secret")
        if self._keys is None:
            self._agree(line)
            return None
        signed = _SIGNED.fullmatch(line)
        if signed is None:
            raise ConnectionEndedError("it sent what is no message", is_stranger=True)
        if not is_signed(self._keys[1], _numbered(self._num_received, signed[2]), bytes.fromhex(signed[1].decode())):
            if not self._is_caller and not self._num_received:
                # A worker with another secret is to learn it. That there is one, is no secret.
                with contextlib.suppress(ConnectionEndedError):
                    self._write(b"%s refused %s" % (_MARK, b"secret" if self._secret.is_given else b"none"))
            raise ConnectionEndedError("it does not know the secret of the job", is_stranger=True)
        self._num_received += 1
        return _parse(signed[2])

    def _agree(self, line: bytes) -> None:
        """Makes the keys of this connection from what both sides have drawn."""
        hello = _HELLO.fullmatch(line)
        if hello is None:
            raise ConnectionEndedError("it sent what is no message of this version", is_stranger=True)
        self._greet()
        nonces = (self._nonce, hello[1]) if self._is_caller else (hello[1], self._nonce)
        of_caller, of_called = (self._secret.derive(side, *nonces) for side in ("caller", "called"))
        self._keys = (of_caller, of_called) if self._is_caller else (of_called, of_caller)
        unsent, self._unsent = self._unsent, []
        for message in unsent:
            self.send(**message)

    def _greet(self) -> None:
        if not self._has_greeted:
            self._has_greeted = True
            self._write(b"%s hello %s" % (_MARK, self._nonce))

    def _write(self, line: bytes) -> None:
        try:
            sent = self.socket.send(line + b"\n")
        except OSError as error:
            raise ConnectionEndedError(error.strerror or str(error)) from error
        # The system's buffer has room for many: who lets it fill does not read.
        if sent <= len(line):
            raise ConnectionEndedError("it does not read what it is sent")


def _numbered(number: int, body: bytes) -> bytes:
    return number.to_bytes(8, "big") + body


def _parse(body: bytes) -> Mapping[str, Any]:
    try:
        message = json.loads(body)
    # The parser recurses once per level of nesting.
    except (ValueError, RecursionError) as error:
        raise ConnectionEndedError("it sent what is no message", is_stranger=True) from error
    if not isinstance(message, dict):
        raise ConnectionEndedError("it sent what is no message", is_stranger=True)
    return message
