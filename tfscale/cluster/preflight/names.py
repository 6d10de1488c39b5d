"""Which addresses does a host name have, when the name server may take its time?"""

import socket
import threading
from typing import Any

Address = tuple[int, Any]
"""Family and socket address, as `socket.socket` and `connect` take them."""


class Lookup:
    """Looks a name up in a thread of its own: the call cannot be interrupted, and a worker that waits must be.

    Args:
        host: A name or an IP address, without the brackets of IPv6.
        port: The port of the addresses.
    """

    def __init__(self, host: str, port: int):
        self._host = host
        self._port = port
        self._addresses: list[Address] = []
        self._error = ""
        # An IP address needs no name server.
        if self._resolve(socket.AI_NUMERICHOST):
            self._thread = None
            return
        self._thread = threading.Thread(target=self._resolve, daemon=True, name=f"tfscale-lookup-{host}")
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether there is an answer."""
        return self._thread is None or not self._thread.is_alive()

    @property
    def addresses(self) -> list[Address]:
        """What was found; nothing where the name is not known."""
        return self._addresses

    @property
    def error(self) -> str:
        """Why nothing was found."""
        return self._error

    def _resolve(self, flags: int = 0) -> bool:
        try:
            # What is ASCII needs no encoding, which would have to be imported.
            host = self._host.encode() if self._host.isascii() else self._host
            found = socket.getaddrinfo(host, self._port, type=socket.SOCK_STREAM, flags=flags)
        except OSError as error:
            self._error = error.strerror or str(error)
            return False
        except UnicodeError as error:
            # A label of more than 63 characters, for example.
            self._error = str(error)
            return False
        self._error = ""
        self._addresses = [(family, address) for family, _, _, _, address in found]
        return True
