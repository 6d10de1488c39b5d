"""Whom a worker takes for gone while it waits for the others."""

import socket
import threading

import pytest

from tfscale.cluster.heartbeats import Beat
from tfscale.cluster.passes import PassesRead
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
