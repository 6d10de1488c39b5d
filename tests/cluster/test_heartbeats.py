import contextlib
import dataclasses
import hashlib
import hmac
import json
import socket
import threading
import time
from random import Random

import pytest

from tests.cluster.preflight.insider import key_of
from tfscale.cluster.heartbeats import Beat, Heartbeats, parse_beat
from tfscale.cluster.passes import LabelsSeen, labels_to_wire
from tfscale.cluster.place import Place, to_wire
from tfscale.cluster.secret import read_secret
from tfscale.cluster.verdict import CALL, GONE, Verdict, verdict_to_wire

TEXT = "correct horse battery"
SECRET = read_secret({"TFSCALE_SECRET": TEXT}, ())
TOKEN = 12345
FIELDS = len(dataclasses.fields(Place))
GOOD = {"rank": 1, "number": 1, "step": 3, "arrived": 2, "left": 1, "waiting_s": 0.5}


def key(text=TEXT, token=TOKEN):
    return hmac.new(key_of(text), b"beats\0" + token.to_bytes(8, "big"), hashlib.sha256).digest()


def signed(message, signer=None):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return hmac.new(signer or key(), body, hashlib.sha256).digest() + body


def test_good():
    assert parse_beat(signed(GOOD), key(), 2) == (1, 1, Beat(3, 2, 1, 0.5))


@pytest.mark.parametrize(
    "changed",
    [
        {"rank": 2},
        {"rank": -1},
        {"rank": True},
        {"rank": None},
        {"number": -1},
        {"number": "1"},
        {"step": 1.5},
        {"step": 10**400},
        {"left": "1"},
        {"waiting_s": -1},
        {"waiting_s": "soon"},
        {"waiting_s": float("nan")},
        {"waiting_s": float("inf")},
        {"arrived": [1]},
    ],
)
def test_wrong_values(changed):
    assert parse_beat(signed({**GOOD, **changed}), key(), 2) is None


@pytest.mark.parametrize("signer", [key(TEXT + "x"), key(token=TOKEN + 1), key_of(TEXT), b"\0"])
def test_wrong_signatures(signer):
    assert parse_beat(signed(GOOD, signer), key(), 2) is None


@pytest.mark.parametrize("data", [b"", b"\xff\x00", b"{}", b"[]", b"3", b"null", b"[" * 900, b'{"rank": 1'])
def test_rubbish(data):
    assert parse_beat(data, key(), 2) is None
    assert parse_beat(signed(data), key(), 2) is None


def test_damaged_at_any_place():
    good, random = signed(GOOD), Random(0)
    for at in range(len(good)):
        damaged = good[:at] + bytes([good[at] ^ 1 << random.randrange(8)]) + good[at + 1 :]
        assert parse_beat(damaged, key(), 2) is None
        assert parse_beat(good[:at], key(), 2) is None


def test_place_verdict_and_labels():
    place, verdict = Place(call=1, kind=1, epoch=2, step=3), Verdict(0, GONE, Place(call=1), seconds=4)
    labels = LabelsSeen(1, 2, 3, (0.5,) * 9)
    told = {"verdict": verdict_to_wire(verdict), "labels": labels_to_wire(labels)}
    message = {**GOOD, "place": to_wire(place), **told}
    assert parse_beat(signed(message), key(), 2) == (1, 1, Beat(3, 2, 1, 0.5, place, verdict, labels))


@pytest.mark.parametrize(
    "changed",
    [
        {"place": []},
        {"place": [-1] * FIELDS},
        {"place": "\x1b[2J"},
        {"place": [10**400] * FIELDS},
        {"verdict": [2, 0, [0] * FIELDS, [0] * FIELDS, 0]},
        {"verdict": [1, 99, [0] * FIELDS, [0] * FIELDS, 0]},
        {"verdict": None},
        {"labels": None},
        {"labels": [1, 1, 1, 0.5]},
    ],
)
def test_wrong_places_and_verdicts(changed):
    assert parse_beat(signed({**GOOD, **changed}), key(), 2) is None


def test_largest_beat_fits_into_a_datagram():
    most = (1 << 40) - 1
    place = Place(most, 3, *[most] * (FIELDS - 2))
    labels = LabelsSeen(most, most, most, (-1.23456789e-300,) * 8 + (1.23456789e300,))
    with Heartbeats(0, 2, SECRET) as chief, Heartbeats(1, 2, SECRET) as worker:
        worker.connect("127.0.0.1", chief.listen(1 << 62), 1 << 62)
        own = Beat(1 << 62, 1 << 62, 1 << 62, 1e300, place, Verdict(1, CALL, place, place, (1 << 31) - 1), labels)
        deadline_s = time.monotonic() + 10
        while 1 not in chief.beats:
            worker.exchange(own)
            chief.exchange(Beat())
            assert time.monotonic() < deadline_s


def test_workers_hear_of_each_other():
    clock = [100.0]
    with Heartbeats(0, 3, SECRET, lambda: clock[0]) as chief, Heartbeats(1, 3, SECRET, lambda: clock[0]) as worker:
        port = chief.listen(TOKEN)
        worker.connect("127.0.0.1", port, TOKEN)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"x" * 5000, ("127.0.0.1", port))
            # Nobody but the chief itself speaks for it.
            stranger.sendto(signed({**GOOD, "rank": 0}), ("127.0.0.1", port))
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


def test_what_is_no_newer_is_not_taken():
    clock = [100.0]
    with (
        Heartbeats(0, 2, SECRET, lambda: clock[0]) as chief,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as network,
    ):
        address = ("127.0.0.1", chief.listen(TOKEN))

        def send(*datagrams):
            for each in datagrams:
                network.sendto(each, address)
            chief.exchange(Beat())

        first, second = (signed({**GOOD, "number": number, "step": number}) for number in (1, 2))
        send(second)
        assert chief.beats[1].step == 2
        clock[0] = 110.0
        # Sent again by who heard it, and late on its way: nothing of it counts, not even as a sign of life.
        send(second, first)
        assert chief.beats[1].step == 2
        assert chief.silent_s(1) == 10.0
        # Of another fit, with another token.
        send(signed({**GOOD, "number": 9, "step": 9}, key(token=TOKEN + 1)))
        assert chief.beats[1].step == 2
        send(signed({**GOOD, "number": 3, "step": 3}))
        assert (chief.beats[1].step, chief.silent_s(1)) == (3, 0.0)


def test_flood_does_not_hold_the_thread():
    with Heartbeats(0, 2, SECRET) as chief, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as network:
        address = ("127.0.0.1", chief.listen(TOKEN))
        is_over = threading.Event()

        def flood():
            while not is_over.is_set():
                network.sendto(b"\0" * 500, address)

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            began_s = time.monotonic()
            for step in range(3):
                chief.exchange(Beat(step=step))
            assert time.monotonic() - began_s < 10
        finally:
            is_over.set()
            flooding.join(10)


def test_chief_that_is_not_there():
    with Heartbeats(1, 2, SECRET) as worker:
        worker.exchange(Beat())
        worker.connect("no-such-host.invalid", 1, TOKEN)
        worker.exchange(Beat())
        worker.connect("127.0.0.1", 1, TOKEN)
        worker.exchange(Beat())
        worker.exchange(Beat(step=2))
        assert worker.beats == {1: Beat(step=2)}


class Second:
    """Passes when somebody waits for it; then workers beat whose time has come."""

    def __init__(self, workers):
        self.now_s = 0.0
        self.due_s = {worker: 0.618 * worker.rank % 1.0 for worker in workers}

    def wait(self, seconds):
        self.now_s += seconds
        for worker, due_s in self.due_s.items():
            if due_s < self.now_s:
                worker.exchange(Beat(step=1))
                self.due_s[worker] = due_s + 1.0
        return False


def test_chief_of_many_hears_them_all():
    num_workers = 600
    with contextlib.ExitStack() as stack:
        chief, *others = [stack.enter_context(Heartbeats(rank, num_workers, SECRET)) for rank in range(num_workers)]
        port = chief.listen(TOKEN)
        # What Linux gives where nobody has changed it; it doubles what it is asked for. 257 beats find room.
        chief._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 212_992 // 2)
        for worker in others:
            worker.connect("127.0.0.1", port, TOKEN)
        assert chief.wait(Second(others), 1.0) is False
        chief.exchange(Beat(step=2))
        assert sorted(chief.beats) == list(range(num_workers))
        # One answer to each, not more: what all send together grows with their number, no faster.
        assert chief._num_sent == num_workers - 1
        for worker in others:
            worker.exchange(Beat(step=2))
            assert worker.beats[0].step == 2


def test_workers_of_a_large_job_beat_one_after_the_other():
    waits = {}

    class Noted:
        def __init__(self, rank):
            self.waited_s = waits.setdefault(rank, [])

        def wait(self, seconds):
            self.waited_s.append(seconds)
            return False

    for num_workers in (100, 1000):
        for rank in range(1, 100):
            beats = Heartbeats(rank, num_workers, SECRET)
            assert not beats.wait(Noted((num_workers, rank)), 1.0)
            assert not beats.wait(Noted((num_workers, rank)), 1.0)
    assert all(waits[100, rank] == [1.0, 1.0] for rank in range(1, 100))
    firsts = sorted(waits[1000, rank][0] for rank in range(1, 100))
    assert all(waits[1000, rank][1:] == [1.0, 1.0] for rank in range(1, 100))
    # No tenth of the second has more than its share, and one.
    assert all(sum(tenth <= 10 * each < tenth + 1 for each in firsts) <= 11 for tenth in range(10))


def test_wait_ends_when_all_is_over():
    is_over = threading.Event()
    is_over.set()
    assert all(Heartbeats(rank, num, SECRET).wait(is_over, 60.0) for rank in (0, 1) for num in (2, 1000))


def test_the_chief_says_a_last_time_where_it_is():
    """Its process ends behind a call that has ended well: without a word others would take it for gone."""
    with Heartbeats(0, 2, SECRET) as chief, Heartbeats(1, 2, SECRET) as worker:
        worker.connect("127.0.0.1", chief.listen(TOKEN), TOKEN)
        worker.exchange(Beat(step=1))
        chief.exchange(Beat(step=1, place=Place(call=1, kind=1)))
        # Nobody has asked since.
        chief.exchange(Beat(step=1, place=Place(call=1)))
        chief.close()
        worker.exchange(Beat(step=1))
        assert worker.beats[0].place == Place(call=1)
