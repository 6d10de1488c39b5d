"""Many workers that meet in one thread, each on its port, under a clock that goes on when nobody has anything to do."""

import contextlib
import os
import selectors
import socket

from tests.cluster.preflight.meetings import given
from tfscale import ClusterSpec
from tfscale.cluster.preflight.meeting import Meeting
from tfscale.errors import ClusterError

SECRET = "of a job of many"
# What was sent to the loopback is there; on a busy machine a little later.
_SETTLE_S = 0.002


def choose_addresses(number):
    """Addresses of ports that the system gives to nobody who connects: so many would soon be somebody's."""
    addresses = []
    # Two that run at a time begin at other places.
    for step in range(22_000):
        port = 10_000 + (os.getpid() * 500 + step) % 22_000
        if len(addresses) == number:
            break
        with contextlib.suppress(OSError):
            socket.create_server(("", port)).close()
            addresses.append(f"127.0.0.1:{port}")
    return tuple(addresses)


class Job:
    """Workers of one job; `errors` has the message of each that could not start, `ended_s` when each ended."""

    def __init__(self, num_workers, *, timeout_s=60.0):
        self.addresses = choose_addresses(num_workers)
        self.errors, self.ended_s = {}, {}
        self.now_s = 0.0
        self.most_open = 0
        self._timeout_s = timeout_s
        self._meetings, self._due_s = {}, {}
        self._selector = selectors.DefaultSelector()

    def start(self, ranks, facts=None, secret=SECRET):
        for rank in ranks:
            spec = ClusterSpec(self.addresses, rank)
            meeting = Meeting(spec, facts or {"seed": "1"}, self._timeout_s, given(secret), lambda: self.now_s)
            self._meetings[rank], self._due_s[rank] = meeting, self.now_s
            self._selector.register(meeting.selector, selectors.EVENT_READ, rank)

    def leave(self, rank):
        meeting = self._meetings.pop(rank)
        self._selector.unregister(meeting.selector)
        meeting.close()

    def run(self, until_s=1000.0):
        while self._meetings and self.now_s < until_s:
            ready = {key.data for key, _ in self._selector.select(_SETTLE_S)}
            if not ready:
                self.now_s = max(self.now_s, min(self._due_s[rank] for rank in self._meetings))
                ready = {rank for rank in self._meetings if self._due_s[rank] <= self.now_s}
            for rank in ready:
                self._look(rank)
        return self

    def close(self):
        for rank in list(self._meetings):
            self.leave(rank)
        self._selector.close()

    def _look(self, rank):
        meeting = self._meetings[rank]
        try:
            meeting.look(0.0)
        except ClusterError as error:
            self.errors[rank] = error.args[0]
        self.most_open = max(self.most_open, 1 + len(meeting.selector.get_map()))
        self._due_s[rank] = self.now_s + meeting.pause_s()
        if meeting.is_over or rank in self.errors:
            self.ended_s[rank] = self.now_s
            self.leave(rank)
