"""What does a worker tell the one above it?"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from tfscale.cluster.preflight.connection import ConnectionEndedError
from tfscale.cluster.preflight.gathering import Gathering, Miss
from tfscale.cluster.preflight.probe import Probe
from tfscale.cluster.preflight.reasons import Reason

# That something is missing, and what, is told so seldom; that nothing is, at once.
_REPORT_S = 0.5


class Reporter:
    """Tells the worker above what this one and those below it miss, and passes on what these say.

    Args:
        rank: Of this worker.
        parent: The probe of the one above.
        gathering: Those below.
        clock: Seconds, from anywhere.
    """

    def __init__(self, rank: int, parent: Probe, gathering: Gathering, clock: Callable[[], float]):
        self._rank = rank
        self._parent = parent
        self._gathering = gathering
        self._clock = clock
        self._told: list[tuple[int, int]] | None = None
        self._told_s = clock()
        self._has: set[str] = set()

    @property
    def is_heard(self) -> bool:
        """Whether there is somebody above who listens."""
        return self._parent.is_reached and self._parent.connection is not None

    def begin_again(self) -> None:
        """The one above has left; if it comes again, it knows nothing."""
        self._told = None
        self._has.clear()

    def tick(self, absent: Mapping[int, Reason], *, is_listening: bool) -> None:
        """Tells what is new.

        Args:
            absent: Whom this worker does not reach, and why.
            is_listening: Whether it has not been asked to give its port free.
        """
        if not self.is_heard:
            return
        trouble = self._gathering.trouble(are_all_there=True)
        if trouble:
            self._tell_once("stop", trouble)
        if self._gathering.late:
            self._tell_once("late", True)
        if not is_listening:
            if self._gathering.is_closed:
                self._tell_once("closed", True)
            return
        misses = self._gathering.report([Miss(self._rank, other, why.text) for other, why in absent.items()])
        pairs = [miss[:2] for miss in misses]
        if pairs != self._told and (not misses or self._told == [] or self._clock() - self._told_s > _REPORT_S):
            self._told, self._told_s = pairs, self._clock()
            self.tell(absent=misses)

    def tell(self, **message: Any) -> None:
        """Says something to the one above, where it is there."""
        if self._parent.connection is not None and self._parent.is_reached:
            # Where the connection has ended, the next look at it says so.
            with contextlib.suppress(ConnectionEndedError):
                self._parent.connection.send(**message)

    def _tell_once(self, name: str, value: Any) -> None:
        if name not in self._has:
            self._has.add(name)
            self.tell(**{name: value})
