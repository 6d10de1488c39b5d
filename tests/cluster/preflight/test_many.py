"""Jobs in which not everybody reaches everybody: what they send, and whom they name. Counted, never timed."""

import contextlib
import selectors
import socket
from collections import Counter

import pytest

from tests.cluster.preflight.in_turn import Job
from tfscale.cluster.preflight.connection import Connection
from tfscale.cluster.preflight.layout import find_children, find_partners
from tfscale.cluster.preflight.probe import Probe
from tfscale.cluster.preflight.reasons import NO_ANSWER
from tfscale.cluster.preflight.reporter import Reporter
from tfscale.cluster.preflight.strangers import Strangers
from tfscale.errors import ClusterError

# Ranks 1 and 2 have others that report to them.
NUM_WORKERS = 80
REFUSED = "connection refused, nothing listens there"


@pytest.fixture
def job():
    with contextlib.closing(Job(NUM_WORKERS, timeout_s=20.0)) as made:
        yield made


def all_but(*missing):
    return [rank for rank in range(NUM_WORKERS) if rank not in missing]


def count_calls(monkeypatch, counts, owner, name):
    original = getattr(owner, name)

    def counted(*given, **named):
        counts[name] += 1
        return original(*given, **named)

    monkeypatch.setattr(owner, name, counted)


def test_connections_and_messages(monkeypatch):
    counts, num_workers = Counter(), 128
    count_calls(monkeypatch, counts, Strangers, "add")
    count_calls(monkeypatch, counts, Connection, "_write")
    with contextlib.closing(Job(num_workers)) as job:
        job.start(range(num_workers))
        job.run()
    assert job.errors == {}
    assert len(job.ended_s) == num_workers
    # Each partner once, nobody else: 10.5 of 127.
    assert counts["add"] == sum(len(find_partners(rank, num_workers)) for rank in range(num_workers))
    assert counts["add"] < num_workers * 11
    # Two greetings and two answers each, and some words up and down the tree.
    assert counts["_write"] < 4 * counts["add"] + 7 * num_workers
    # What the chief has open does not grow with the job but for those that come at once.
    assert job.most_open < 200


@pytest.mark.parametrize("missing", [70, 2, 79])
def test_missing_worker_is_named_by_all(job, missing):
    # One that nobody reports to, one with 32 that do, and the last one.
    job.start(all_but(missing))
    job.run()
    assert sorted(job.errors) == all_but(missing)
    who = f"Worker {missing} ({job.addresses[missing]}) did not answer within 20 s; "
    for rank, error in job.errors.items():
        assert error.startswith(who), (rank, error)
        assert REFUSED in error
    assert f"{who}78 workers did.\nReceived by worker 0 " in job.errors[0]
    assert max(job.ended_s.values()) < 23


def test_missing_chief_is_named_by_all(job):
    job.start(all_but(0))
    job.run()
    assert sorted(job.errors) == all_but(0)
    assert all(error.startswith(f"Worker 0 ({job.addresses[0]}) did not answer") for error in job.errors.values())


def test_fifty_missing_are_listed_shortly(job):
    missing = range(20, 70)
    job.start(all_but(*missing))
    job.run()
    shown = ", ".join(f"{rank} ({job.addresses[rank]})" for rank in missing[:5])
    assert job.errors[0] == (
        f"Workers {shown} and 45 more did not answer within 20 s; 29 workers did.\n"
        f"Received by worker 0 ({job.addresses[0]}): {REFUSED}. Start it, or read its output."
    )
    assert sorted(job.errors) == all_but(*missing)
    assert set(job.errors.values()) == {job.errors[0]}


def test_late_worker_is_waited_for(job):
    job.start(all_but(33))
    job.run(until_s=10)
    assert not job.ended_s
    job.start([33])
    job.run()
    assert job.errors == {}
    # Who comes last is called by those who wait for it, and keeps nobody waiting.
    assert max(job.ended_s.values()) < 12


@pytest.mark.parametrize("leaver", [70, 2])
def test_worker_that_leaves_and_comes_again(job, leaver):
    job.start(all_but(50))
    job.run(until_s=5)
    job.leave(leaver)
    job.run(until_s=8)
    job.start([leaver])
    job.run(until_s=12)
    assert not job.ended_s
    job.start([50])
    job.run()
    assert job.errors == {}


def test_worker_that_left_is_missing(job):
    job.start(all_but(50))
    job.run(until_s=5)
    job.leave(70)
    job.run()
    who = f"Workers 50 ({job.addresses[50]}), 70 ({job.addresses[70]}) did not answer within 20 s; 77 workers did."
    assert job.errors[0].startswith(who)
    assert set(job.errors.values()) == {job.errors[0]}


def test_pair_that_does_not_reach_each_other_is_named_to_all(job, monkeypatch):
    caller, called = 70, 38
    assert called in find_partners(caller, NUM_WORKERS)
    connect, port = Probe._connect, int(job.addresses[called].rpartition(":")[2])

    def blocked(probe, now_s):
        if (probe._greeting["rank"], probe._port) == (caller, port):
            probe._fail(NO_ANSWER)
        else:
            connect(probe, now_s)

    monkeypatch.setattr(Probe, "_connect", blocked)
    job.start(range(NUM_WORKERS))
    job.run()
    assert sorted(job.errors) == all_but()
    for rank in all_but(caller):
        assert job.errors[rank] == (
            f"Every worker must reach all others.\n"
            f"Received: worker {caller} ({job.addresses[caller]}) does not reach worker {called} "
            f"({job.addresses[called]}): no answer from its host. Check firewalls and host names between those hosts."
        )


@pytest.mark.parametrize("other", [{70}, {2}, set(range(33, 65))])
def test_who_differs_is_named_to_all(job, other):
    job.start(all_but(*other))
    job.start(sorted(other), {"seed": "2"})
    job.run()
    assert sorted(job.errors) == all_but()
    first = min(other)
    said = f"Received: seed: 2 on worker {first} ({job.addresses[first]}), 1 on worker 0 ({job.addresses[0]})"
    assert said in job.errors[0]
    assert ("; and 27 more." in job.errors[0]) == (len(other) == 32)
    assert set(job.errors.values()) == {job.errors[0]}
    assert max(job.ended_s.values()) < 10


def test_worker_with_another_secret_is_named(job):
    job.start(all_but(70))
    job.start([70], secret="of quite another job")
    job.run()
    assert sorted(job.errors) == all_but()
    assert all("another TFSCALE_SECRET" in error for error in job.errors.values())
    named = f"Worker 70 ({job.addresses[70]}) must be found at the address given for it"
    assert all(named in job.errors[rank] for rank in all_but(70))
    assert max(job.ended_s.values()) < 15


def test_worker_that_leaves_when_all_have_met_ends_the_job(job, monkeypatch):
    # One of those that report to worker 2 ends when it is asked to give its port free.
    leaver = find_children(2, NUM_WORKERS)[7]
    tell = Reporter.tell

    def told(reporter, **message):
        if reporter._rank == leaver and "closed" in message:
            raise ClusterError("killed")
        tell(reporter, **message)

    monkeypatch.setattr(Reporter, "tell", told)
    job.start(range(NUM_WORKERS))
    job.run()
    assert job.errors.pop(leaver) == "killed"
    assert sorted(job.errors) == all_but(leaver)
    assert set(job.errors.values()) == {
        f"All workers must stay until training starts.\n"
        f"Received: worker {leaver} ({job.addresses[leaver]}) has left. Its own output says why."
    }
    assert max(job.ended_s.values()) < 10


def test_hosts_that_swallow_calls_keep_nobody_from_the_others(job, monkeypatch):
    # A firewall drops what is sent to them; more of one worker's partners than it has calls open at a time.
    dead = sorted(find_partners(40, NUM_WORKERS) - {0, 1, 41})
    ports = {int(job.addresses[rank].rpartition(":")[2]) for rank in dead}
    connect, calls = Probe._connect, Counter()

    with contextlib.ExitStack() as stack:

        def swallowed(probe, now_s):
            calls[probe._greeting["rank"], probe._port] += 1
            if probe._port not in ports:
                connect(probe, now_s)
                return
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs)
            probe.connection = Connection(ours, probe._secret, is_caller=True, expires_s=now_s + 5.0)
            probe._selector.register(ours, selectors.EVENT_READ, probe._on_message)

        monkeypatch.setattr(Probe, "_connect", swallowed)
        job.start(all_but(*dead))
        job.run(until_s=10.5)
        # Eight of them, four at a time, take 5 s each; then all others have their turn.
        tried = {port for rank, port in calls if rank == 40}
        assert len(tried) == len(find_partners(40, NUM_WORKERS))
        job.run()
    assert sorted(job.errors) == all_but(*dead)
    assert f"and {len(dead) - 5} more did not answer within 20 s; " in job.errors[0]
    assert ": no answer from its host. Check that the host is up" in job.errors[0]
