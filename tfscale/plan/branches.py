"""Which critical batch do branches with grown batches tell, from one checkpoint on?

With E_k the examples that a branch with k times the batch b takes to where the main run gets, relative to the main
run's: `E_k = (1 + k b / B) / (1 + b / B)`. Short branches mislead, by up to 10 times: a few large steps are fewer than
the optimizer remembers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tfscale.errors import MeasureError
from tfscale.plan.critical_batch import FROM_BRANCHES, CriticalBatch

FACTORS = (4, 8, 16)
# A tuned run does not get there with so much fewer examples at twice the rate alone.
_TUNED = 0.8
LEAST_STEPS = 20
_FAR = 1e4


def stretch_steps(memory: float) -> int:
    """Steps of the main run: 20 at the largest branch, and so many that the optimizer forgets twice there.

    Args:
        memory: beta_1 or the momentum.

    Example:
        >>> from tfscale.plan.branches import stretch_steps
        >>> stretch_steps(0.9), stretch_steps(0.99)
        (320, 3200)
    """
    return max(FACTORS) * max(LEAST_STEPS, math.ceil(round(2 / (1 - memory), 6)))


def from_branches(examples: Mapping[int, float], batch: float, *, at_twice_the_rate: float = math.inf) -> CriticalBatch:
    """Returns the critical batch, in a band from half to twice that.

    A branch has a larger rate besides its batch. Where the run's own is too low the branch gains by that, and the
    critical batch seems larger than it is: then there is a caution.

    Args:
        examples: E_k by k; infinite where a branch did not get there: such a one tells nothing.
        batch: b.
        at_twice_the_rate: Examples of a branch with twice the rate and the same batch, relative to the main run's.

    Raises:
        MeasureError: When fewer than two branches got there.

    Example:
        >>> from tfscale.plan.branches import from_branches
        >>> found = from_branches({k: (1 + k * 16 / 200) / (1 + 16 / 200) for k in (4, 8, 16)}, batch=16)
        >>> round(found.low), round(found.value), round(found.high)
        (100, 200, 400)
    """
    told = {k: each for k, each in examples.items() if math.isfinite(each) and each > 0}
    if len(told) < 2:
        raise MeasureError(
            "Two branches or more must reach the loss of the main run.\n"
            f"Received: {sorted(told)} times the batch of {batch:g} did, of {sorted(examples)}. At a smaller rate they "
            "may; `tfscale study` tells in any case."
        )

    def spread(log_critical: float) -> float:
        critical = math.exp(log_critical)
        return math.fsum(
            (math.log(each) - math.log((1 + k * batch / critical) / (1 + batch / critical))) ** 2
            for k, each in told.items()
        )

    low, high = math.log(batch / _FAR), math.log(batch * max(FACTORS) * _FAR)
    grid = [low + (high - low) * place / 4000 for place in range(4001)]
    value = math.exp(min(grid, key=spread))
    shown = ", ".join(f"{k} times the batch {each:.2f} times the examples" for k, each in sorted(told.items()))
    cautions: tuple[str, ...] = ()
    if at_twice_the_rate < _TUNED:
        cautions = (
            f"the rate is too low, twice the rate alone takes {at_twice_the_rate:.2f} times the examples; the branches "
            "gain by theirs, and the critical batch is smaller than this: calibrate at a tuned rate",
        )
    largest = max(told) * batch
    if value > FROM_BRANCHES * largest:
        note = f"branches, it is beyond the largest one: {shown}"
        return CriticalBatch(largest / FROM_BRANCHES, None, math.inf, "branches", note, cautions)
    note = f"branches: {shown}"
    return CriticalBatch(value / FROM_BRANCHES, value, value * FROM_BRANCHES, "branches", note, cautions)
