"""Of how many steps can one be measured, so that it costs no more than a hundredth?

Half of that at most is for measuring. The other half is for what is in the graph of every step, measured or not, and
cannot be seen in the run: some microseconds of a processor for each replica. Where they are more than that half, as a
step is short, less is left for measuring, and fewer steps are measured.
"""

from __future__ import annotations

import math
import statistics

MOST_COST = 0.01
FIXED_S = 40e-6
"""Of a processor, in every step of a replica: `python -m benchmarks.noise_cost`."""
_SAMPLED = MOST_COST / 2
# What the clock of the run, and the callback's own code, may be off by.
_SPARE = MOST_COST / 10
_LEAST_SAMPLED = MOST_COST / 10
_LEFT_OUT = 2
_CALLS = 24
_LONGEST = 1000


def fixed_s(num_replicas: int, num_cores: int) -> float:
    """Seconds that a step takes longer where it can measure, whether it does or not.

    Args:
        num_replicas: Of this process.
        num_cores: That it may use; replicas for which there is none wait for one another.

    Example:
        >>> from tfscale.measure.sampling import fixed_s
        >>> fixed_s(2, 4), fixed_s(4, 2)
        (4e-05, 8e-05)
    """
    return FIXED_S * math.ceil(num_replicas / num_cores)


class EveryChooser:
    """Chooses from the run's own times: some calls in which every step is measured, in turn with some in which none is.

    The first calls, which make the graph, are left out. Medians of both kinds are compared: other work on the machine
    comes to both.

    Args:
        fixed_s: Seconds that every step takes longer, measured or not.

    Example:
        >>> from tfscale.measure.sampling import EveryChooser
        >>> chooser = EveryChooser()
        >>> while chooser.every is None:
        ...     chooser.add(0.102 if chooser.measures_next else 0.100)
        >>> chooser.every
        4
    """

    def __init__(self, fixed_s: float = 0.0) -> None:
        self._fixed_s = fixed_s
        self.every: int | None = None
        """One step of so many; None until it is chosen."""
        self.cost: float | None = None
        """What measuring adds to a step, as a share of it."""
        self._times: tuple[list[float], list[float]] = ([], [])
        self._calls = 0

    @property
    def measures_next(self) -> bool:
        """Whether the steps of the next call are measured, until the choice is made."""
        return self._calls % 2 == 0

    def add(self, seconds_per_step: float) -> None:
        """Takes the time of a call that has ended."""
        if self.every is not None:
            return
        if self._calls >= _LEFT_OUT:
            self._times[self.measures_next].append(seconds_per_step)
        self._calls += 1
        if self._calls < _LEFT_OUT + _CALLS:
            return
        without, with_it = map(statistics.median, self._times)
        self.cost = max(0.0, with_it / without - 1) if without > 0 else 0.0
        left = MOST_COST - _SPARE - (self._fixed_s / without if without > 0 else 0.0)
        self.every = min(_LONGEST, max(1, math.ceil(round(self.cost / min(_SAMPLED, max(_LEAST_SAMPLED, left)), 9))))
