"""Somebody else at the port: none of them may hold up the job, end it, or fill the memory."""

import contextlib
import json
import math
import socket
import threading
import time
from random import Random

import pytest

from tests.cluster.preflight.insider import MARK, Insider, connect, key_of
from tests.cluster.preflight.meetings import Worker
from tfscale import ClusterSpec
from tfscale.cluster.preflight import meet
from tfscale.launch.ports import free_addresses

SECRET = "correct horse battery"
OTHER_SECRET = "incorrect horse battery"
HELLO = MARK + b"hello " + b"0" * 32 + b"\n"
SIGNED = b"0" * 64 + b' {"rank": 1, "token": "x", "facts": {}}\n'
# What could be said to the meeting before it asked for signatures, and ended it.
UNSIGNED = [
    {"tfscale-preflight": 1, "rank": 1, "token": "x", "facts": {}},
    {"tfscale-preflight": 1, "rank": 0, "token": "x", "facts": {}},
    {"tfscale-preflight": 1, "rank": 7, "token": "x", "facts": {"list of workers": "\x1b[2J"}},
]

VISITS = {
    "silent": b"",
    "half a line": MARK + b"hel",
    "no message": b"\x00\xff\n" * 10,
    "web": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "TensorFlow": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "endless line": b"x" * 200_000,
    "deep": b"[" * 10_000 + b"\n",
    "other version": b"tfscale-meeting 3 hello " + b"0" * 32 + b"\n",
    "short nonce": MARK + b"hello 00\n",
    "hello and no more": HELLO,
    "two hellos": HELLO * 2,
    "hello and rubbish": HELLO + b"\x00\xff\n" * 10,
    "hello and an endless line": HELLO + b"0" * 200_000,
    "refuses": MARK + b"refused secret\n",
    "greets and refuses": HELLO + MARK + b"refused none\n",
    "signed with nothing": HELLO + SIGNED * 3,
    "no hello": SIGNED,
    **{f"unsigned {index}": json.dumps(each).encode() + b"\n" for index, each in enumerate(UNSIGNED)},
}


@pytest.mark.parametrize("sent", VISITS.values(), ids=VISITS)
@pytest.mark.parametrize("visited", [0, 1])
def test_visitor_holds_nobody_up(sent, visited):
    addresses = free_addresses(2)
    first = Worker(addresses, visited)
    with connect(addresses[visited]) as visitor:
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
            stack.enter_context(connect(addresses[0]))
        second = Worker(addresses, 1)
        assert [first.join().error, second.join().error] == ["", ""]


def test_drips_cost_five_seconds_each():
    # A byte now and then, of what begins like a worker: its time is up all the same.
    addresses = free_addresses(2)
    first = Worker(addresses, 0, timeout_s=30)
    with connect(addresses[0]) as visitor:
        began_s = time.monotonic()
        with contextlib.suppress(OSError):
            for byte in HELLO * 3:
                visitor.sendall(bytes([byte]))
                time.sleep(0.15)
        assert 4 < time.monotonic() - began_s < 9
    second = Worker(addresses, 1)
    assert [first.join().error, second.join().error] == ["", ""]


@pytest.mark.parametrize("says_hello", [False, True])
def test_flood_of_connections(says_hello):
    # One after the other, none of them ended by who made it, while the workers meet.
    addresses = free_addresses(2)
    is_over = threading.Event()
    made = []

    def flood():
        port = int(addresses[0].rpartition(":")[2])
        while not is_over.is_set() and len(made) < 2000:
            with contextlib.suppress(OSError):
                made.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                if says_hello:
                    made[-1].sendall(HELLO)

    first = Worker(addresses, 0, timeout_s=40)
    with connect(addresses[0]):
        flooding = threading.Thread(target=flood)
        flooding.start()
    try:
        time.sleep(0.2)
        second = Worker(addresses, 1, timeout_s=40)
        assert [first.join().error, second.join().error] == ["", ""]
        assert second.took_s < 10
    finally:
        is_over.set()
        flooding.join(20)
        for each in made:
            each.close()


def test_who_floods_takes_his_own_places():
    # The first to come stays, though hundreds come after it from another host.
    addresses = free_addresses(2)
    first = Worker(addresses, 0)
    port, late_port = (int(address.rpartition(":")[2]) for address in addresses)
    with contextlib.ExitStack() as stack, connect(addresses[0]) as early:
        # Hundreds of connections need hundreds of ports: none of them is the one on which the second worker listens.
        with socket.socket() as kept:
            kept.bind(("127.0.0.2", late_port))
            for _ in range(300):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 10, source_address=("127.0.0.2", 0)))
        early.sendall(HELLO)
        assert early.makefile("rb").readline().startswith(MARK + b"hello ")
        second = Worker(addresses, 1)
        assert [first.join().error, second.join().error] == ["", ""]


GREETING = {"rank": 1, "token": "x", "job": "x", "facts": {}}


@pytest.mark.parametrize("key", [key_of(OTHER_SECRET), b"", key_of(addresses=["127.0.0.1:1"])])
@pytest.mark.parametrize("rank", [0, 1])
def test_wrong_key_costs_a_connection(key, rank):
    addresses = free_addresses(2)
    first = Worker(addresses, 0, secret=SECRET)
    with Insider(addresses[0], key) as stranger:
        stranger.say({**GREETING, "rank": rank})
        # It learns that there is a secret, no more.
        assert stranger.hear() == MARK + b"refused secret\n"
        assert stranger.is_hung_up_on()
    second = Worker(addresses, 1, secret=SECRET)
    assert [first.join().error, second.join().error] == ["", ""]


def test_replay_is_refused():
    addresses = free_addresses(2)
    first = Worker(addresses, 0, secret=SECRET)
    with Insider(addresses[0], key_of(SECRET)) as worker:
        # It asks only who this is, and is told so.
        worker.say({"rank": 1, "token": "x", "job": "x"})
        assert json.loads(worker.hear().partition(b" ")[2])["rank"] == 0
        # The same once more on the same connection, and all of it on another one.
        worker.write(worker.sent[-1])
        assert worker.is_hung_up_on()
        recorded = worker.sent
    with connect(addresses[0]) as replay:
        replay.sendall(b"\n".join(recorded) + b"\n")
        heard = replay.makefile("rb").readlines()
    assert heard[0].startswith(MARK + b"hello ")
    assert heard[1:] == [MARK + b"refused secret\n"]
    second = Worker(addresses, 1, secret=SECRET)
    assert [first.join().error, second.join().error] == ["", ""]


def test_own_words_do_not_come_back():
    # What the worker itself has signed is not taken for a caller's.
    addresses = free_addresses(2)
    first = Worker(addresses, 0, secret=SECRET)
    with Insider(addresses[0], key_of(SECRET)) as worker:
        worker.write(worker.sign(json.dumps(GREETING).encode(), side=b"called"))
        assert worker.hear() == MARK + b"refused secret\n"
    second = Worker(addresses, 1, secret=SECRET)
    assert [first.join().error, second.join().error] == ["", ""]


NONSENSE = [
    {**GREETING, "rank": 7},
    {**GREETING, "rank": -1},
    {**GREETING, "rank": 10**400},
    {**GREETING, "rank": True},
    {**GREETING, "rank": 1.0},
    {**GREETING, "rank": None},
    {**GREETING, "rank": [1]},
    {**GREETING, "token": 3},
    {**GREETING, "facts": 3},
    {**GREETING, "facts": {"a": 1}},
    {**GREETING, "facts": {str(each): "" for each in range(100)}},
    {"rank": 1},
    b"[]",
    b"3",
    b"{",
    b"[" * 10_000,
    b'{"rank": ' + b"1" * 5000 + b"}",
    b"\xff\xfe",
]


@pytest.mark.parametrize("said", NONSENSE, ids=lambda said: str(said)[:40])
def test_nonsense_of_one_who_knows_the_secret_is_not_kept(said):
    addresses = free_addresses(2)
    facts = {"seed": "1"}
    first = Worker(addresses, 0, facts, secret=SECRET)
    if isinstance(said, dict) and said.get("facts") == {}:
        # The right facts, as finding 9 had them: all that is wrong is the rank.
        said = {**said, "facts": {"list of workers": f"[{', '.join(addresses)}]", **facts}}
    with Insider(addresses[0], key_of(SECRET)) as insider:
        insider.say(said)
        second = Worker(addresses, 1, facts, secret=SECRET)
        assert [first.join().error, second.join().error] == ["", ""]
        assert max(first.took_s, second.took_s) < 4


def test_rank_of_a_longer_list_is_named():
    addresses = free_addresses(2)
    first = Worker(addresses, 0, secret=SECRET, timeout_s=5)
    with Insider(addresses[0], key_of(SECRET)) as insider:
        insider.say({**GREETING, "rank": 7, "facts": {"list of workers": "eight"}})
        assert "list of workers: eight on worker 7, " in first.join().error


def test_nothing_received_reaches_the_terminal_raw():
    addresses = free_addresses(2)
    first = Worker(addresses, 0, secret=SECRET)
    evil = "\x1b[2J\x1b]0;title\x07\r\u202ered\x9b31m\n"
    facts = {f"{evil}{each}": evil * 20 for each in range(5)}
    with Insider(addresses[0], key_of(SECRET)) as insider:
        insider.say({**GREETING, "facts": facts})
        error = first.join().error
        stop = [json.loads(line.partition(b" ")[2]) for line in insider.socket.makefile("rb") if b"stop" in line]
    assert "All workers must agree" in error
    assert all(each.isprintable() or each == "\n" for each in error)
    assert len(error) <= 2000
    assert stop
    assert stop[0]["stop"] == error


def test_chief_that_lies_does_not_reach_the_terminal_raw():
    # A worker shows what the chief says; here the chief is one who knows the secret.
    addresses = free_addresses(2)
    worker = Worker(addresses, 1, secret=SECRET)
    port = int(addresses[0].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)) as listener:
        accepted, _ = listener.accept()
        with accepted, accepted.makefile("rb") as lines:
            theirs = lines.readline().strip().rpartition(b" ")[2]
            accepted.sendall(HELLO)
            chief = Insider.__new__(Insider)
            chief._key, chief._nonce, chief.answer, chief._count = key_of(SECRET), theirs, b" " + b"0" * 32, 0
            lines.readline()
            for message in ({"rank": 0, "token": "t", "job": "j"}, {"stop": "\x1b[2J\r" + "x" * 9000}):
                accepted.sendall(chief.sign(json.dumps(message).encode(), side=b"called") + b"\n")
                chief._count += 1
            error = worker.join().error
    assert error.startswith("\\x1b[2J\\rxxx")
    assert len(error) <= 2000


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ((SECRET, OTHER_SECRET), ("has another TFSCALE_SECRET than this worker",) * 2),
        (
            (SECRET, None),
            ("has no TFSCALE_SECRET, and this worker has one", "has a TFSCALE_SECRET, and this worker has"),
        ),
    ],
)
def test_workers_with_other_secrets_say_so(secrets, said):
    addresses = free_addresses(2)
    workers = [Worker(addresses, rank, secret=secret) for rank, secret in enumerate(secrets)]
    for rank, worker in enumerate(workers):
        assert f"Worker {1 - rank} ({addresses[1 - rank]}) must be found at the address" in worker.join().error
        assert said[rank] in worker.error
        assert "Set TFSCALE_SECRET to the same value for every worker of the job" in worker.error
        assert worker.took_s < 10


def test_one_of_three_has_another_secret():
    addresses = free_addresses(3)
    workers = [Worker(addresses, rank, secret=OTHER_SECRET if rank == 2 else SECRET) for rank in range(3)]
    errors = [worker.join().error for worker in workers]
    assert all("another TFSCALE_SECRET" in error for error in errors)
    assert all(f"Worker 2 ({addresses[2]})" in error for error in errors[:2])
    assert max(worker.took_s for worker in workers) < 10


def test_without_a_secret_the_log_says_so_once(caplog):
    addresses = free_addresses(3)
    workers = [Worker(addresses, rank) for rank in range(3)]
    assert [worker.join().error for worker in workers] == [""] * 3
    assert [record.getMessage()[:39] for record in caplog.records] == ["The workers meet without a secret: who "]
    caplog.clear()
    workers = [Worker(addresses, rank, secret=SECRET) for rank in range(3)]
    assert [worker.join().error for worker in workers] == [""] * 3
    assert not caplog.records


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, 1e12])
def test_clock_that_jumps(jump_s):
    addresses = free_addresses(2)
    looks = []

    def clock():
        looks.append(None)
        return time.monotonic() + (jump_s if 30 < len(looks) < 90 else 0.0)

    other = Worker(addresses, 1, delay_s=1.0)
    # Two jumps, there and back, are less than the time that is left.
    meet(ClusterSpec(tuple(addresses), 0), {}, timeout_s=15.0, clock=clock)
    assert other.join().error == ""
    assert len(looks) > 90


def test_clock_that_goes_back_does_not_put_off_the_end():
    addresses = free_addresses(2)
    times = iter([*(1000.0 + each for each in range(5)), *(0.5 * each for each in range(10_000))])
    with pytest.raises(Exception, match="did not answer within 20 s"):
        meet(ClusterSpec(tuple(addresses), 0), {}, timeout_s=20.0, clock=lambda: next(times))


# Random bytes, and damaged messages of one who knows the secret: bounded, and each a case of its own.
@pytest.mark.parametrize("seed", range(4))
def test_fuzz(seed):
    random = Random(seed)
    addresses = free_addresses(2)
    first = Worker(addresses, 0, secret=SECRET, timeout_s=60)
    for _ in range(100):
        with Insider(addresses[0], key_of(SECRET)) as insider, contextlib.suppress(OSError):
            line = insider.sign(json.dumps({**GREETING, "rank": random.choice([1, 7])}).encode())
            at = random.randrange(len(line))
            # Never what was there: that would be a worker with other facts, which the job must end for.
            damaged = line[:at] + bytes([line[at] ^ random.randrange(1, 256)]) + line[at + 1 :]
            insider.write(random.choice([damaged, random.randbytes(100), line[:at], b"\n" * at]))
    second = Worker(addresses, 1, secret=SECRET)
    assert [first.join().error, second.join().error] == ["", ""]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "something accepted the connection and said nothing"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "something else listens there: another program, or a worker that trains"),
        (b"y" * 100_000, "something else listens there"),
        (b'{"tfscale-preflight": 1, "rank": 1}\n', "something else listens there"),
        (HELLO + SIGNED, "something else listens there"),
        (MARK + b"refused none\n", "has another list of workers"),
        (HELLO + MARK + b"refused secret\n", "has a TFSCALE_SECRET, and this worker has none"),
    ],
)
def test_somebody_else_at_a_peers_address(answer, said):
    with _server(answer) as address:
        # Once the server has its port: a port that is free before is one that the server may get.
        [own] = free_addresses(1)
        worker = Worker([own, address], 0, timeout_s=1.0).join()
    assert f"Worker 1 ({address}) " in worker.error
    assert said in worker.error
    assert worker.took_s < 5


def test_stranger_that_is_silent_after_its_first_answer_is_still_a_stranger():
    with _server(b"y" * 100_000, num_answers=1) as address:
        [own] = free_addresses(1)
        worker = Worker([own, address], 0, timeout_s=1.0).join()
    assert "something else listens there" in worker.error


@contextlib.contextmanager
def _server(answer, num_answers=math.inf):
    """Yields the address of a server that answers the first ones alike, or everybody, and ends no connection itself."""
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    accepted.append(connection)
                    with contextlib.suppress(OSError):
                        connection.sendall(answer if len(accepted) <= num_answers else b"")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for connection in accepted:
                connection.close()
