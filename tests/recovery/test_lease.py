"""A directory of a store belongs to one run at a time, as far as a store without locks allows."""

import json
import logging
import math
import os
import socket
import subprocess
import sys
import time

import pytest

from tests.recovery.memory_store import DIRECTORY, MemoryObjects, refuse
from tfscale.errors import RecoveryError
from tfscale.recovery.lease import DirectoryLease, LeaseNote, LeaseTimes, find_process, is_gone, parse_note
from tfscale.recovery.store import StoreError

LOCK = f"{DIRECTORY}/lock"
TIMES = LeaseTimes(renew_s=60.0, watch_s=0.5, settle_s=0.0, answer_s=5.0)
NOTE = LeaseNote("elsewhere", 7, "2026-01-01T00:00:00+00:00", "0123", "boot pid:[1]/99", 5.0)


@pytest.fixture
def objects():
    return MemoryObjects()


@pytest.fixture
def open_lease(objects):
    opened = []

    def open_lease(**times):
        opened.append(DirectoryLease(DIRECTORY, objects.open(DIRECTORY), LeaseTimes(**{**vars(TIMES), **times})))
        return opened[-1]

    yield open_lease
    objects.fault = lambda verb, name: None
    for lease in opened:
        lease.release()


def leave(objects, **changed):
    """A note of another process that does nothing any more."""
    note = {**vars(NOTE), "renewed_s": time.time(), **changed}
    objects.content[LOCK] = json.dumps(note).encode()


def test_taken_and_given_back(open_lease, objects):
    lease = open_lease()
    assert lease.take() is None
    assert json.loads(objects.content[LOCK])["pid"] == os.getpid()
    lease.check()
    lease.release()
    assert objects.content == {}
    lease.release()


def test_a_fit_inside_of_a_fit_is_refused(open_lease):
    first, second = open_lease(), open_lease()
    assert first.take() is None
    assert second.take() == "this very process has used in another `fit`, which has not ended"
    first.release()
    assert second.take() is None


def test_what_could_not_be_removed_in_the_end_keeps_nobody_out(open_lease, objects):
    first, second = open_lease(), open_lease()
    assert first.take() is None
    objects.fault = lambda verb, name: refuse(verb, name) if verb == "delete" else None
    first.release()
    assert LOCK in objects.content
    assert second.take() is None


def test_another_host_is_watched_and_lives(open_lease, objects, caplog):
    leave(objects)
    looks = []

    def renew(verb, name):
        looks.append(verb)
        if len(looks) == 3:
            leave(objects)

    objects.fault = renew
    assert open_lease().take() == "process 7 on host elsewhere has used since 2026-01-01T00:00:00+00:00"
    assert "If that process is dead, this run goes on in 0 s" in caplog.text


@pytest.mark.parametrize(
    "changed", [{}, {"renewed_s": math.inf}, {"process": "?"}, {"pid": "none"}, {"pid": -1}, {"token": None}]
)
def test_another_host_that_is_dead_is_waited_for(open_lease, objects, changed):
    leave(objects, **changed)
    start_s = time.monotonic()
    assert open_lease().take() is None
    assert time.monotonic() - start_s >= TIMES.watch_s


@pytest.mark.parametrize("content", [b"", b"\xff", b"[[[[" * 10_000, b"null", b"\x1b[31m not ours"])
def test_a_note_of_somebody_else_is_watched_as_any_other(open_lease, objects, content):
    assert parse_note(content) == parse_note(content)
    lease = open_lease()
    assert lease.take() is None
    objects.content[LOCK] = content
    with pytest.raises(RecoveryError, match=r"which process 0 on host \? has used"):
        lease.check()
    assert open_lease().take() is None


def test_an_old_note_is_not_watched(open_lease, objects):
    leave(objects, renewed_s=time.time() - 601)
    start_s = time.monotonic()
    assert open_lease(watch_s=60.0).take() is None
    assert time.monotonic() - start_s < 10


def test_a_process_of_this_host_is_known_at_once(open_lease, objects):
    host = socket.gethostname()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        leave(objects, host=host, pid=process.pid, process=find_process(process.pid))
        holder = open_lease(watch_s=60.0).take()
        process.kill()
        process.wait()
    assert holder == f"process {process.pid} on host {host} has used since 2026-01-01T00:00:00+00:00"
    assert open_lease(watch_s=60.0).take() is None


PROCESSES = {1: "boot pid:[1]/5", 7: "boot pid:[1]/99", 8: "boot pid:[1]/100", 10: "boot pid:[1]/?"}


@pytest.mark.parametrize(
    ("changed", "gone"),
    [
        ({"pid": 7}, False),
        # The number was given to another process, or to none.
        ({"pid": 8}, True),
        ({"pid": 9}, True),
        # One of another user, who hides it.
        ({"pid": 10}, False),
        # Another container or boot: that it is not seen says nothing.
        ({"pid": 9, "process": "boot pid:[2]/99"}, False),
        ({"pid": 9, "process": "?"}, False),
        ({"pid": 9, "host": "elsewhere"}, False),
    ],
)
def test_whose_process_is_gone(changed, gone):
    note = LeaseNote(**{**vars(NOTE), "host": "here", **changed})
    assert is_gone(note, "here", lambda pid: PROCESSES.get(1 if pid == os.getpid() else pid)) == gone
    # Where nothing is known of processes, none is seen to be gone.
    assert not is_gone(note, "here", lambda pid: None)


def test_of_two_who_begin_at_once_one_goes_on(open_lease, objects):
    first, second = open_lease(), open_lease()

    def interleave(verb, name):
        # The first one has looked and found nobody, and so does the second. Its note is written behind the first one's.
        if verb == "write":
            objects.fault = lambda verb, name: None
            assert second.take() is None
            note = objects.content[LOCK]
            objects.fault = lambda verb, name: objects.content.update({LOCK: note}) if verb == "written" else None

    objects.fault = interleave
    assert "has used" in first.take()
    second.check()


def test_it_is_renewed_until_another_one_has_it(open_lease, objects, caplog):
    lease = open_lease(renew_s=0.02)
    assert lease.take() is None
    before = objects.content[LOCK]
    wait_for(lambda: objects.content[LOCK] != before)
    # A store that fails for a while is no reason to give it up, nor is a note that somebody has removed.
    objects.fault = refuse
    time.sleep(0.1)
    objects.content.pop(LOCK)
    objects.fault = lambda verb, name: None
    wait_for(lambda: LOCK in objects.content)
    leave(objects)
    wait_for(lambda: "Nothing more is saved by this one" in caplog.text)
    with pytest.raises(RecoveryError, match="process 7 on host elsewhere has used since 2026"):
        lease.check()
    lease.release()
    # It is the other one's.
    assert LOCK in objects.content


def wait_for(condition):
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_store_that_fails_or_hangs_is_refused_in_time(open_lease, objects, caplog):
    objects.fault = refuse
    with pytest.raises(StoreError, match="Cannot read"):
        open_lease().take()
    goes_on = time.monotonic() + 1.5
    objects.fault = lambda verb, name: time.sleep(max(0.0, goes_on - time.monotonic()))
    with caplog.at_level(logging.WARNING), pytest.raises(StoreError, match=r"has not answered in 0.2 s. Look at"):
        open_lease(answer_s=0.2).take()
