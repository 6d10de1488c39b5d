"""Whom a worker takes for gone while it waits for the others."""

import socket
import threading

import pytest

from tfscale.cluster.heartbeats import Beat
from tfscale.cluster.passes import LabelsSeen, PassesRead
from tfscale.cluster.place import Place
from tfscale.replicas.peers import PeerWatch


class Silent:
    """Heartbeats of which the last one came long ago."""

    def __init__(self, seconds):
        self.beats = {1: Beat(place=Place(call=1, step=3))}
        self._seconds = seconds

    def wait(self, is_over, beat_s):
        return is_over.wait(beat_s)

    def exchange(self, own):
        del own

    def silent_s(self, rank):
        del rank
        return self._seconds

    def close(self):
        pass


@pytest.mark.parametrize(
    ("answers", "seconds", "is_gone"),
    [
        pytest.param(True, 3.0, False, id="late"),
        pytest.param(False, 3.0, False, id="late, and no port"),
        pytest.param(False, 13.0, True, id="gone"),
        pytest.param(True, 13.0, False, id="a callback holds Python's lock"),
        pytest.param(True, 121.0, True, id="for ever"),
    ],
)
def test_silence(answers, seconds, is_gone):
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"127.0.0.1:{door.getsockname()[1]}"
        if not answers:
            door.close()
        heard, passes = Silent(seconds), PassesRead()
        watch = PeerWatch(0, ["127.0.0.1:1", address], heard, passes, abort=lambda message: ended.set())
        watch.begin_call("fit")
        watch.begin()
        try:
            assert ended.wait(3.0) == is_gone
        finally:
            watch.end()
    assert (watch.verdict is not None) == is_gone


class Late(Silent):
    """Heartbeats of a peer who is heard of only when this worker's script is over."""

    def __init__(self, labels, after):
        super().__init__(0.0)
        self.beats, self._labels, self._left = {}, labels, after

    def exchange(self, own):
        del own
        self._left -= 1
        if self._left <= 0:
            self.beats = {1: Beat(place=Place(), labels=self._labels)}


@pytest.mark.parametrize(("sums", "is_said"), [((3.0, 1.0), True), ((2.0, 1.0), False)])
def test_a_job_that_is_over_at_once_waits_for_what_the_others_have_read(sums, is_said, caplog):
    passes = PassesRead()
    passes.note_labels(LabelsSeen(1, 1, 1, (2.0, 1.0)))
    watch = PeerWatch(0, ["127.0.0.1:1", "127.0.0.1:2"], Late(LabelsSeen(1, 1, 1, sums), 5), passes)
    watch.begin_loop()
    watch.begin()
    watch.end()
    assert ["What has been trained is not what one replica trains." in each for each in caplog.messages] == [
        True
    ] * is_said


class Ending(Silent):
    """Heartbeats of a peer who ends its call when it was asked a few times; the chief's say whether all have."""

    def __init__(self, rank, after):
        super().__init__(0.0)
        self._rank, self._left = rank, after
        self._hear()

    def _hear(self):
        kind = 1 if self._left > 0 else 0
        self.beats = {self._rank: Beat(place=Place(call=1, kind=kind, all_ended=self._rank == 0 and not kind))}

    def exchange(self, own):
        self.last = own.place
        self._left -= 1
        self._hear()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_whose_script_is_over_stays_until_the_others_have_ended_the_last_call(rank):
    heard = Ending(1 - rank, after=5)
    watch = PeerWatch(rank, ["127.0.0.1:1", "127.0.0.1:2"], heard, PassesRead())
    watch.begin_call("evaluate")
    watch.end_call()
    watch.end()
    assert heard._left < 0
    assert heard.last.all_ended == (rank == 0)


def test_nobody_stays_for_a_worker_that_does_not_end(monkeypatch):
    seconds = iter(range(100))
    watch = PeerWatch(0, ["127.0.0.1:1", "127.0.0.1:2"], Ending(1, 1000), PassesRead(), clock=lambda: next(seconds))
    watch.begin_call("fit")
    watch.end_call()
    watch.end()
    assert next(seconds) < 20
