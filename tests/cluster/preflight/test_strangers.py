"""Somebody else at the port: none of them may hold up the job, or fill the memory."""

import contextlib
import socket
import threading

import pytest

from tests.cluster.preflight.meetings import Worker
from tfscale.launch.ports import free_addresses

VISITS = {
    "silent": b"",
    "half a line": b'{"tfscale-preflight": 1',
    "no message": b"\x00\xff\n" * 10,
    "web": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "TensorFlow": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "endless line": b"x" * 200_000,
    "deep": b"[" * 10_000 + b"\n",
    "other version": b'{"tfscale-preflight": 2, "rank": 1}\n',
    "no facts": b'{"tfscale-preflight": 1, "rank": 1, "token": "t", "facts": 3}\n',
    "no rank": b'{"tfscale-preflight": 1, "rank": [], "token": "t", "facts": {}}\n',
    "rank out of range": b'{"tfscale-preflight": 1, "rank": 99, "token": "t"}\n',
    "a number": b'{"tfscale-preflight": 1, "rank": 1e999}\n',
}


@pytest.mark.parametrize("sent", VISITS.values(), ids=VISITS)
@pytest.mark.parametrize("visited", [0, 1])
def test_visitor_holds_nobody_up(sent, visited):
    addresses = free_addresses(2)
    first = Worker(addresses, visited)
    with _connect(addresses[visited]) as visitor:
        with contextlib.suppress(OSError):
            visitor.sendall(sent)
        second = Worker(addresses, 1 - visited)
        assert [first.join().error, second.join().error] == ["", ""]
        assert max(first.took_s, second.took_s) < 4


def test_crowd():
    addresses = free_addresses(2)
    first = Worker(addresses, 0)
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(_connect(addresses[0]))
        second = Worker(addresses, 1)
        assert [first.join().error, second.join().error] == ["", ""]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "something accepted the connection and said nothing"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "something else listens there: another program, or a worker that trains"),
        (b"y" * 100_000, "something else listens there"),
        (b'{"tfscale-preflight": 1, "rank": 1}\n', "something else listens there"),
        (b'{"tfscale-preflight": 1, "rank": 1, "token": "t", "job": "x"}\n', "has another list of workers"),
    ],
)
def test_somebody_else_at_a_peers_address(answer, said):
    [own] = free_addresses(1)
    with _server(answer) as address:
        worker = Worker([own, address], 0, timeout_s=1.0).join()
    assert f"Worker 1 ({address}) " in worker.error
    assert said in worker.error
    assert worker.took_s < 5


def _connect(address):
    host, _, port = address.rpartition(":")
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((host, int(port)), timeout=10)


@contextlib.contextmanager
def _server(answer):
    """Yields the address of a server that answers everybody alike, and ends no connection by itself."""
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    accepted.append(connection)
                    with contextlib.suppress(OSError):
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for connection in accepted:
                connection.close()
