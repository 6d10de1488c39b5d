"""A process that speaks the meeting's language, written from its description and not from its code."""

import contextlib
import hashlib
import hmac
import json
import os
import socket

MARK = b"tfscale-meeting 2 "


def connect(address, deadline_s=10):
    host, _, port = address.rpartition(":")
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((host, int(port)), timeout=deadline_s)


def key_of(secret=None, addresses=()):
    """The key of a job that was given a secret, or of one that has a list of workers alone."""
    text = "tfscale job\0" + "\0".join(sorted(addresses)) if secret is None else "tfscale secret\0" + secret
    return hashlib.sha256(text.encode()).digest()


class Insider:
    """A connection to a worker, from one who knows a key and says what he likes."""

    def __init__(self, address, key):
        self.socket = connect(address)
        self.sent = []
        self._key, self._count = key, 0
        self._file = self.socket.makefile("rb")
        self._nonce = os.urandom(16).hex().encode()
        self.write(MARK + b"hello " + self._nonce)
        self.answer = self._file.readline().strip()

    def write(self, line):
        self.sent.append(line)
        self.socket.sendall(line + b"\n")

    def sign(self, body, side=b"caller", count=None):
        nonces = b"\0".join([side, self._nonce, self.answer.rpartition(b" ")[2]])
        key = hmac.new(self._key, nonces, hashlib.sha256).digest()
        numbered = (self._count if count is None else count).to_bytes(8, "big") + body
        return hmac.new(key, numbered, hashlib.sha256).hexdigest().encode() + b" " + body

    def say(self, message):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.write(self.sign(body))
        self._count += 1

    def hear(self):
        """The next line; nothing at the end of the connection."""
        with contextlib.suppress(ConnectionError):
            return self._file.readline()
        return b""

    def is_hung_up_on(self):
        while line := self.hear():
            assert line.startswith(MARK)
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self.socket.close()
