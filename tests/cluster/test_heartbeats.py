import json
import socket
import time

import pytest

from tfscale.cluster.heartbeats import Beat, Heartbeats, parse_beat

TOKEN = 12345
GOOD = {"token": TOKEN, "rank": 1, "step": 3, "arrived": 2, "left": 1, "waiting_s": 0.5}


def test_good():
    assert parse_beat(json.dumps(GOOD).encode(), TOKEN, 2) == (1, Beat(3, 2, 1, 0.5))


@pytest.mark.parametrize(
    "changed",
    [
        {"token": 1},
        {"token": str(TOKEN)},
        {"rank": 2},
        {"rank": -1},
        {"rank": True},
        {"rank": None},
        {"step": 1.5},
        {"left": "1"},
        {"waiting_s": -1},
        {"waiting_s": "soon"},
        {"waiting_s": float("nan")},
        {"arrived": [1]},
    ],
)
def test_wrong_values(changed):
    assert parse_beat(json.dumps({**GOOD, **changed}).encode(), TOKEN, 2) is None


@pytest.mark.parametrize("data", [b"", b"\xff\x00", b"{}", b"[]", b"3", b"null", b"[" * 1000, b'{"token": 12345'])
def test_rubbish(data):
    assert parse_beat(data, TOKEN, 2) is None


def test_workers_hear_of_each_other():
    clock = [100.0]
    with Heartbeats(0, 3, lambda: clock[0]) as chief, Heartbeats(1, 3, lambda: clock[0]) as worker:
        port = chief.listen(TOKEN)
        worker.connect("127.0.0.1", port, TOKEN)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"x" * 5000, ("127.0.0.1", port))
            # Nobody but the chief itself speaks for it.
            stranger.sendto(json.dumps({**GOOD, "rank": 0}).encode(), ("127.0.0.1", port))
        clock[0] = 107.0
        deadline_s = time.monotonic() + 10
        while len(chief.beats) < 2 or len(worker.beats) < 2:
            worker.exchange(Beat(step=5))
            chief.exchange(Beat(step=4))
            assert time.monotonic() < deadline_s
        assert chief.beats == {0: Beat(step=4), 1: Beat(step=5)}
        assert worker.beats == {1: Beat(step=5), 0: Beat(step=4)}
        clock[0] = 110.0
        assert [chief.silent_s(rank) for rank in range(3)] == [0.0, 3.0, 10.0]


def test_chief_that_is_not_there():
    with Heartbeats(1, 2) as worker:
        worker.exchange(Beat())
        worker.connect("no-such-host.invalid", 1, TOKEN)
        worker.exchange(Beat())
        worker.connect("127.0.0.1", 1, TOKEN)
        worker.exchange(Beat())
        worker.exchange(Beat(step=2))
        assert worker.beats == {1: Beat(step=2)}
