"""How many batches has each pass over the job's data had on this worker?

All workers begin the same passes over the same data sets in the same order, so two numbers name a pass on each of them.
"""

from __future__ import annotations

import collections
import threading
from typing import Any, NamedTuple

# Passes that others may still tell of.
_KEPT = 64


class EndedPass(NamedTuple):
    """A pass over data that was read to its end."""

    data: int = 0
    """Which data set of the job, from 1; 0 where none has ended."""
    number: int = 0
    """Which pass over it, from 1."""
    batches: int = 0
    """How many it had."""


class PassesRead:
    """The passes over data of one worker. Threads of TensorFlow note them.

    Example:
        >>> from tfscale.cluster.passes import EndedPass, PassesRead
        >>> passes = PassesRead()
        >>> data = passes.add_data()
        >>> number = passes.begin(data)
        >>> passes.note(data, number)
        >>> passes.has_more_than(EndedPass(data, number, batches=0))
        True
        >>> passes.end(data, number)
        >>> passes.last_ended
        EndedPass(data=1, number=1, batches=1)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_data = 0
        self._num_begun: collections.Counter[int] = collections.Counter()
        self._batches: dict[tuple[int, int], int] = {}
        self._ended: dict[tuple[int, int], EndedPass] = {}
        self.last_ended = EndedPass()
        """Of all data."""

    def add_data(self) -> int:
        """Returns the number of one more data set; every worker calls it."""
        with self._lock:
            self._num_data += 1
            return self._num_data

    def begin(self, data: int) -> int:
        """Returns the number of one more pass."""
        with self._lock:
            self._num_begun[data] += 1
            number = self._num_begun[data]
            self._batches[data, number] = 0
            _leave(self._batches)
            return number

    def note(self, data: int, number: int) -> None:
        """Notes that a pass has had one more batch."""
        with self._lock:
            if (data, number) in self._batches:
                self._batches[data, number] += 1

    def end(self, data: int, number: int) -> None:
        """Notes that there are no more."""
        with self._lock:
            if (data, number) in self._batches:
                self.last_ended = EndedPass(data, number, self._batches[data, number])
                self._ended[data, number] = self.last_ended
                _leave(self._ended)

    def last_ended_of(self, data: int) -> EndedPass:
        """The last pass over a data set that has ended."""
        with self._lock:
            return next((each for each in reversed(self._ended.values()) if each.data == data), EndedPass())

    def find_ended(self, data: int, number: int) -> EndedPass | None:
        """A pass, if it has ended and is still known."""
        with self._lock:
            return self._ended.get((data, number))

    def has_more_than(self, other: EndedPass) -> bool:
        """Whether a pass has had more batches here than on another worker, where it has ended."""
        with self._lock:
            return self._batches.get((other.data, other.number), 0) > other.batches


def _leave(passes: dict[tuple[int, int], Any]) -> None:
    while len(passes) > _KEPT:
        del passes[next(iter(passes))]
