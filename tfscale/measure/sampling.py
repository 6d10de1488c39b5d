"""Of how many steps can one be measured, so that it costs no more than a hundredth?

Half of that is for measuring. The other half is for what is in the graph of every step, measured or not, and cannot be
seen in the run: 30 to 40 microseconds of a processor for each replica.
"""

from __future__ import annotations

import math
import statistics

MOST_COST = 0.01
_SAMPLED = MOST_COST / 2
_LEFT_OUT = 2
_CALLS = 24
_LONGEST = 1000


class EveryChooser:
    """Chooses from the run's own times: some calls in which every step is measured, in turn with some in which none is.

    The first calls, which make the graph, are left out. Medians of both kinds are compared: other work on the machine
    comes to both.

    Example:
        >>> from tfscale.measure.sampling import EveryChooser
        >>> chooser = EveryChooser()
        >>> while chooser.every is None:
        ...     chooser.add(0.102 if chooser.measures_next else 0.100)
        >>> chooser.every
        4
    """

    def __init__(self) -> None:
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
        self.every = min(_LONGEST, max(1, math.ceil(round(self.cost / _SAMPLED, 9))))
