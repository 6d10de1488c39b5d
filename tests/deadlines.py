"""When is a process late? When it has waited too long: one that computes is slow, as its machine may be.

What hangs (a worker whose peer is gone, a collective that fails) takes no processor time.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence

import psutil

# In so many parts of its time it is seen whether it computes.
_LOOKS = 8
# Of the time, what a process that waits takes at most: TensorFlow's idle threads wake up now and then.
_WAITING = 0.1
# So often in a row. Once may be the machine: one that is virtual stands still now and then, for a minute even.
_TIMES = 2
# So many times as long may one compute.
_MOST = 3.0


class Deadline:
    """A time within which processes are to end, and thrice as much if they still compute when it has passed.

    Args:
        timeout_s: The time.
        pids: The processes; what they have started counts as theirs.
    """

    def __init__(self, timeout_s: float, pids: Sequence[int]) -> None:
        now_s = time.monotonic()
        self._pids = pids
        self._look_s = timeout_s / _LOOKS
        self._end_s, self._last_s = now_s + timeout_s, now_s + _MOST * timeout_s
        self._next_s, self._used_s, self._times_waiting = now_s + self._look_s, 0.0, 0

    def has_passed(self) -> bool:
        """Whether they are late; to be asked again and again."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        used_s = sum(map(_processor_time_s, self._pids))
        waits = used_s - self._used_s <= _WAITING * self._look_s
        self._times_waiting = self._times_waiting + 1 if waits else 0
        self._next_s, self._used_s = now_s + self._look_s, used_s
        return now_s >= (self._end_s if self._times_waiting >= _TIMES else self._last_s)


def _processor_time_s(pid: int) -> float:
    """Of a process and all that it has started, those that have ended included."""
    return sum(_of_each(pid))


def _of_each(pid: int) -> Iterator[float]:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                yield sum(each.cpu_times()[:4])
