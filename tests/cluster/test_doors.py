import socket
import threading
import time

import pytest

from tfscale.cluster.doors import knock, knock_again
from tfscale.cluster.verdict import GONE, UNREACHABLE


@pytest.fixture
def open_port():
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_who_answers(open_port, closed_port):
    addresses = {0: f"127.0.0.1:{open_port}", 1: f"127.0.0.1:{closed_port}", 2: "no-such-host.invalid:1"}
    assert knock(addresses, 2.0) == {1: GONE, 2: UNREACHABLE}


def test_nobody():
    assert knock({}, 1.0) == {}


def test_one_that_takes_no_connection(open_port):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = f"127.0.0.1:{full.getsockname()[1]}"
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        start_s = time.monotonic()
        assert knock({1: address, 2: f"127.0.0.1:{open_port}"}, 0.3) == {1: UNREACHABLE}
        assert time.monotonic() - start_s < 5
        for each in waiting:
            each.close()


def test_more_than_one_round(open_port, closed_port):
    addresses = {rank: f"127.0.0.1:{closed_port if rank % 2 else open_port}" for rank in range(600)}
    assert knock(addresses, 20.0) == dict.fromkeys(range(1, 600, 2), GONE)


def test_one_that_closes_a_little_later():
    server = socket.create_server(("127.0.0.1", 0))
    addresses = {3: f"127.0.0.1:{server.getsockname()[1]}"}
    # A port whose connections nobody takes is open only until the last socket of it is closed.
    closing = threading.Timer(0.3, server.close)
    closing.start()
    assert knock(addresses, 1.0) == {}
    assert knock_again(addresses, 1.0, 10.0) == {3: GONE}
    closing.join()


def test_patience_ends(open_port):
    assert knock_again({1: f"127.0.0.1:{open_port}"}, 1.0, 0.2) == {}
