"""What a worker has met at another's address, at every moment of its attempts."""

import contextlib
import selectors
import socket

import pytest

from tests.cluster.preflight.insider import MARK
from tfscale.cluster.preflight.probe import Probe
from tfscale.cluster.preflight.reasons import OTHER_JOB, Reason
from tfscale.cluster.secret import read_secret

REFUSAL = MARK + b"refused none\n"


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@contextlib.contextmanager
def _probing(listener, clock):
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    secret = read_secret({}, (address,))
    with selectors.DefaultSelector() as selector:
        probe = Probe(address, selector, secret, {"rank": 0}, lambda answer: OTHER_JOB, clock)
        try:
            yield probe, selector
        finally:
            probe.end()


def _select(selector):
    for key, _ in selector.select(5):
        key.data()


def _is_refused(probe, listener, selector):
    """One attempt, and the answer to it."""
    probe.tick()
    _select(selector)
    with listener.accept()[0] as accepted:
        accepted.sendall(REFUSAL)
        while probe.connection is not None:
            _select(selector)


def test_who_was_the_wrong_one_is_it_still_while_the_next_attempt_is_under_way(listener):
    clock = Clock()
    with _probing(listener, clock) as (probe, selector):
        _is_refused(probe, listener, selector)
        assert probe.reason is OTHER_JOB
        # By then the name is looked up again, too.
        clock.now_s += 6
        probe.tick()
        assert probe.reason is OTHER_JOB
        _select(selector)
        assert probe.reason is OTHER_JOB
        assert probe.wrong_for_s() == 6


def test_one_that_says_nothing_is_not_the_wrong_one_for_ever(listener):
    clock = Clock()
    with _probing(listener, clock) as (probe, selector):
        _is_refused(probe, listener, selector)
        clock.now_s += 1
        probe.tick()
        _select(selector)
        clock.now_s += 0.4
        assert probe.wrong_for_s() == pytest.approx(1.4)
        listener.close()
        probe.end()
        clock.now_s += 0.05
        probe.tick()
        _select(selector)
        assert probe.wrong_for_s() == 0
        assert probe.reason == Reason("connection refused, nothing listens there", "Start it, or read its output.")
