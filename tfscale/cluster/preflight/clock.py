"""How much time has passed, whatever the clock does?"""

from collections.abc import Callable

_LONGEST_STEP_S = 10.0


class SteadyClock:
    """Seconds since it was made, of a clock that may jump.

    A process that was stopped, or a machine that slept, finds that its clock has moved on by hours: of a step between
    two looks 10 s are counted at most, so that the others get the time in which they can answer. A step back is none.

    Args:
        clock: Seconds, from anywhere.

    Example:
        >>> from tfscale.cluster.preflight.clock import SteadyClock
        >>> times = iter([0.0, 1.0, 3601.0, 5.0, 6.0])
        >>> clock = SteadyClock(lambda: next(times))
        >>> [clock() for _ in range(4)]
        [1.0, 11.0, 11.0, 12.0]
    """

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._last_s = clock()
        self._passed_s = 0.0

    def __call__(self) -> float:
        """Returns the seconds."""
        now_s = self._clock()
        self._passed_s += min(max(now_s - self._last_s, 0.0), _LONGEST_STEP_S)
        self._last_s = now_s
        return self._passed_s
