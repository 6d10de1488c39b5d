"""How often is a run's state to be saved?"""

from __future__ import annotations

import math
from typing import Any

from tfscale.errors import RecoveryError

# How long all workers may go on before they hear what the chief has decided, and of a signal that one of them got.
AGREEMENT_S = 1.0


def young_daly_s(save_s: float, mtbf_s: float) -> float:
    """Returns the seconds between two saves that lose the least time to saving and to repeating.

    every_s = sqrt(2 * save_s * mtbf_s), and never less than `save_s` itself.

    Args:
        save_s: Time of one save.
        mtbf_s: Mean time between failures of the whole job.

    Reference:
        Young 1974, "A first order approximation to the optimum checkpoint interval"; Daly 2006, "A higher order
        estimate of the optimum checkpoint interval for restart dumps".
    """
    return max(math.sqrt(2 * save_s * mtbf_s), save_s)


def check_interval(every_steps: Any, every_s: Any, keep: Any, mtbf_s: Any) -> None:
    """Refuses what is not positive, or both kinds of interval at once.

    Raises:
        RecoveryError: Naming the argument.
    """
    if every_steps is not None and every_s is not None:
        raise RecoveryError(
            "At most one of `every_steps` and `every_s` may be given.\n"
            f"Received: every_steps={every_steps!r}, every_s={every_s!r}. Leave one of them out, or both: then the "
            "interval follows from how long a save takes."
        )
    for name, value, kinds in (
        ("every_steps", every_steps, (int,)),
        ("keep", keep, (int,)),
        ("every_s", every_s, (int, float)),
        ("mtbf_s", mtbf_s, (int, float)),
    ):
        is_left_out = value is None and name.startswith("every")
        if not is_left_out and (isinstance(value, bool) or not isinstance(value, kinds) or not value > 0):
            unit = "a positive integer" if kinds == (int,) else "a positive number of seconds"
            raise RecoveryError(f"`{name}` must be {unit}.\nReceived: {name}={value!r}.")


class SaveClock:
    """When is the next save due, by time?

    Args:
        every_s: Seconds between two saves; None for Young's and Daly's interval, from the longest of the last saves.
        mtbf_s: Mean time between failures.
        now_s: The time at which the run begins.
    """

    def __init__(self, every_s: float | None, mtbf_s: float, now_s: float):
        self.every_s = every_s
        self._mtbf_s = mtbf_s
        self._last_s = now_s

    def is_due(self, now_s: float, save_s: float | None) -> bool:
        """Whether to save now.

        Args:
            now_s: The time.
            save_s: How long a save takes; None as long as there was none, and then one is due, to find out.
        """
        if self.every_s is None and save_s is None:
            return True
        return now_s - self._last_s >= self.interval_s(save_s)

    def interval_s(self, save_s: float | None) -> float:
        """Returns the seconds between two saves."""
        return self.every_s if self.every_s is not None else young_daly_s(save_s or 0.0, self._mtbf_s)

    def saved(self, now_s: float) -> None:
        """Starts anew."""
        self._last_s = now_s


def next_agreement(calls: int, elapsed_s: float) -> int:
    """Returns after how many calls of the train function the workers should talk again: about `AGREEMENT_S`.

    Args:
        calls: Made since they talked last.
        elapsed_s: How long those took. At most twice as many come next, because the first ones make the graph.
    """
    if elapsed_s <= 0:
        return 2 * calls
    return max(1, min(2 * calls, int(calls * AGREEMENT_S / elapsed_s)))
