"""Which critical batch do steps to a target at several batches follow?

`S(B) = S_min (1 + B_crit / B)`: far below B_crit twice the batch takes half the steps, far above it as many. The
examples are `E(B) = B S(B) = E_min (1 + B / B_crit)` with `E_min = S_min B_crit`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfscale.errors import StudyError

# Quantiles of Student's distribution at 97.5 %, by degrees of freedom from 1 on.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_T_MANY = 1.96
# B_crit is looked for up to so many times beyond the batches that were tried.
_FAR = 1e4
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class LawFit:
    """What fits the steps at several batches best.

    Args:
        b_crit: B_crit, in examples.
        low: Lower end of its interval of 95 %, from how far the points are from the law.
        high: Upper end; infinite where the points do not tell.
        s_min: S_min, in steps.
        rms: Root of the mean square of log S - log of the law.
        exponent: a of `S_min (1 + (B_crit / B)^a)` if that is fitted in its place; 1 is the law. None of two points.
    """

    b_crit: float
    low: float
    high: float
    s_min: float
    rms: float
    exponent: float | None

    @property
    def e_min(self) -> float:
        """E_min, in examples."""
        return self.s_min * self.b_crit

    def steps(self, batch: float) -> float:
        """S(B)."""
        return self.s_min * (1 + self.b_crit / batch)

    def examples(self, batch: float) -> float:
        """E(B)."""
        return batch * self.steps(batch)


def fit_law(batches: Sequence[float], steps: Sequence[float], *, with_exponent: bool = True) -> LawFit:
    """Fits the two numbers of the law to the logarithms of steps.

    Args:
        batches: At least two different ones, in examples.
        steps: To the target at each of them; finite, above 0.
        with_exponent: Whether to look for a better exponent than 1, which takes most of the time.

    Raises:
        StudyError: When that is not so.

    Example:
        >>> from tfscale.study import fit_law
        >>> found = fit_law([16, 64, 256, 1024], [70.0, 25.0, 13.75, 10.9375])
        >>> round(found.b_crit, 2), round(found.s_min, 2), round(found.e_min), found.rms < 1e-6
        (96.0, 10.0, 960, True)

    Reference:
        McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", arXiv:1812.06162, equation 2.11.
    """
    _check(batches, steps)
    logs = [math.log(each) for each in steps]
    floor, ceiling = math.log(min(batches) / _FAR), math.log(max(batches) * _FAR)

    def spread(log_critical: float, exponent: float = 1.0) -> float:
        return _residuals(batches, logs, log_critical, exponent)[1]

    best = _minimum(spread, floor, ceiling)
    least = spread(best)
    log_s_min = _residuals(batches, logs, best, 1.0)[0]
    freedom = len(batches) - 2
    low, high = 0.0, math.inf
    if freedom > 0:
        t = _T[freedom - 1] if freedom <= len(_T) else _T_MANY
        limit = max(least, 1e-12) * (1 + t * t / freedom)
        low, high = _ends(spread, limit, best, floor, ceiling)
    exponent = None
    if freedom > 0 and with_exponent:
        powers = [math.exp(math.log(5) * (place / 15 - 1)) for place in range(31)]
        exponent = min(
            powers, key=lambda power: spread(_minimum(lambda each: spread(each, power), floor, ceiling), power)
        )
    rms = math.sqrt(least / len(batches))
    return LawFit(math.exp(best), low, high, math.exp(log_s_min), rms, exponent)


def _check(batches: Sequence[float], steps: Sequence[float]) -> None:
    for name, values in (("batches", batches), ("steps", steps)):
        for each in values:
            is_number = isinstance(each, numbers.Real) and not isinstance(each, bool) and math.isfinite(each)
            if not is_number or each <= 0:
                raise StudyError(
                    f"`{name}` must be numbers above 0.\nReceived: {each!r}. Leave out what did not reach the target."
                )
    if len(batches) != len(steps) or len(set(batches)) < 2:
        raise StudyError(
            "A critical batch takes the steps at two batches, or more.\n"
            f"Received: batches={list(batches)!r} and {len(steps)} numbers of steps. Try more batches."
        )


def _residuals(
    batches: Sequence[float], logs: Sequence[float], log_critical: float, exponent: float
) -> tuple[float, float]:
    """Returns the best log S_min for a B_crit, and the sum of the squares of what is left."""
    shapes = [_log_shape((log_critical - math.log(batch)) * exponent) for batch in batches]
    left = [log - shape for log, shape in zip(logs, shapes, strict=True)]
    mean = math.fsum(left) / len(left)
    return mean, math.fsum((each - mean) ** 2 for each in left)


def _log_shape(power: float) -> float:
    """log(1 + e^power), for any power."""
    return power + math.log1p(math.exp(-power)) if power > 0 else math.log1p(math.exp(power))


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function is least: of a grid, then by golden sections around that point."""
    # The functions have one valley: a coarse grid finds it.
    grid = [low + (high - low) * place / 20 for place in range(21)]
    values = list(map(function, grid))
    place = values.index(min(values))
    low, high = grid[max(0, place - 1)], grid[min(20, place + 1)]
    for _ in range(30):
        first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if function(first) <= function(second):
            high = second
        else:
            low = first
    return (low + high) / 2


def _ends(
    spread: Callable[[float], float], limit: float, best: float, floor: float, ceiling: float
) -> tuple[float, float]:
    """Where the spread reaches a limit on both sides of its least; 0 and infinity where it does not."""

    def end(outer: float) -> float | None:
        inside, outside = best, outer
        if spread(outer) <= limit:
            return None
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if spread(middle) <= limit else (inside, middle)
        return math.exp(inside)

    low, high = end(floor), end(ceiling)
    return 0.0 if low is None else low, math.inf if high is None else high
