"""How long is the gradient of one step, and how much of it is noise?

Unbiased answers from gradients that are there already: those of the shards of a batch, which are its replicas, or the
micro-batches of one.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfscale.errors import MeasureError


@dataclass(frozen=True)
class StepMoments:
    """What one step says; the estimates of many steps are added up before they are divided.

    Args:
        variance: v, the total variance of the gradient of one example: an estimate that may be below 0.
        squared_mean: m, the square of the length of the gradient of all data: an estimate that may be below 0.
        examples: n, examples of the step.
        shards: K, shards that had examples.
    """

    variance: float
    squared_mean: float
    examples: float
    shards: int

    def with_moments(self, variance: float, squared_mean: float) -> StepMoments:
        """The same step, for some of the variables."""
        return replace(self, variance=variance, squared_mean=squared_mean)


def step_moments(
    weighted_squares: Any, squared_norm: Any, examples: Any, shards: Any, *, loss_scale: Any = 1.0
) -> StepMoments | None:
    """Returns the two moments of one step, or None when it says nothing.

    `A = sum_i w_i |g_i|^2` and `q = |sum_i w_i g_i|^2`, both before clipping, give

    `v = n (A - q) / (K - 1)`, `m = q - v / n`,

    which are unbiased for shards of any sizes, as long as the variance of g_i is v / (w_i n).

    Args:
        weighted_squares: A, with the mean gradients g_i of the shards and their weights w_i, of sum 1.
        squared_norm: q.
        examples: n, examples of the step; above 0.
        shards: K, shards that had examples.
        loss_scale: What the gradients are multiplied by, against underflow.

    Returns:
        None for one shard, of which nothing can be told, and where A or q is not finite, as in a step that loss scaling
        skips.

    Raises:
        MeasureError: When an argument is no number, or out of its range.

    Example:
        >>> from tfscale.measure import step_moments
        >>> # Two shards of one example each, with the gradients 3 and 5: their mean is 4.
        >>> step_moments((9 + 25) / 2, 16, examples=2, shards=2)
        StepMoments(variance=2.0, squared_mean=15.0, examples=2.0, shards=2)

    Reference:
        McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", arXiv:1812.06162, appendix A.1.
    """
    for name, value in (("weighted_squares", weighted_squares), ("squared_norm", squared_norm)):
        # Not a number, or infinite, is what an overflow leaves: no mistake.
        _check(name, value, "a number, 0 or more", _is_real(value) and not value < 0)
    _check("examples", examples, "a positive number", _is_finite(examples) and examples > 0)
    whole = isinstance(shards, numbers.Integral) and not isinstance(shards, bool)
    _check("shards", shards, "a positive integer", whole and shards > 0)
    _check("loss_scale", loss_scale, "a positive number", _is_finite(loss_scale) and loss_scale > 0)
    scale = float(loss_scale) ** 2
    squares, norm = float(weighted_squares) / scale, float(squared_norm) / scale
    if shards < 2 or not math.isfinite(squares) or not math.isfinite(norm):
        return None
    n = float(examples)
    variance = n * (squares - norm) / (int(shards) - 1)
    return StepMoments(variance, norm - variance / n, n, int(shards))


def weigh_shards(rows: Sequence[float]) -> list[float]:
    """Returns the weights w_i of shards from their parts of the loss's denominator; empty ones weigh nothing.

    Args:
        rows: For a plain mean the examples of each shard.

    Raises:
        MeasureError: When one is no number of 0 or more, or all are 0.

    Example:
        >>> from tfscale.measure.moments import weigh_shards
        >>> weigh_shards([3, 1, 0])
        [0.75, 0.25, 0.0]
    """
    for each in rows:
        _check("rows", each, "numbers, 0 or more", _is_finite(each) and each >= 0)
    total = math.fsum(rows)
    _check("rows", list(rows), "numbers of which one is above 0", total > 0)
    return [float(each) / total for each in rows]


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    try:
        return _is_real(value) and math.isfinite(value)
    except OverflowError:
        return False


def _check(name: str, value: Any, what: str, is_right: bool) -> None:
    if not is_right:
        shown = f"an integer of {value.bit_length()} bits" if isinstance(value, int) and abs(value) > 2**256 else None
        raise MeasureError(f"`{name}` must be {what}.\nReceived: {name}={shown or repr(value)[:200]}. Correct it.")
