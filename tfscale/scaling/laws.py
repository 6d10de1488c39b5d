"""What becomes of one kind of knob when the batch grows by r and the rate by f?

Every law here composes: applied with (r, f) and then with (s, g) it gives what it gives with (r s, f g). Only `WHOLE`
has to round, because Keras counts some things in whole steps.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tfscale.errors import ScalingError
from tfscale.scaling.batch_plan import MAX_COUNT
from tfscale.scaling.knob import UNCHANGED
from tfscale.scaling.ratio import is_number, plain, show
from tfscale.scaling.rules import ScalingRule


@dataclass(frozen=True)
class Growth:
    """By how much everything grows, and what else a law may look at.

    Args:
        ratio: r, the batch ratio.
        factor: f, the factor of the learning rate.
        rule: The rule that f comes from.
        knobs: The old value of every knob of the optimizer.
    """

    ratio: Fraction
    factor: float
    rule: ScalingRule
    knobs: Mapping[str, Any]


@dataclass(frozen=True)
class Law:
    """How one kind of knob changes.

    Args:
        formula: As the table shows it.
        unit: What the knob is counted in.
        reason: One sentence for the user.
        scale: From the knob's name, its old value and the growth to the new value, and a remark or "".
    """

    formula: str
    unit: str
    reason: str
    scale: Callable[[str, Any, Growth], tuple[Any, str]]

    def because(self, reason: str) -> Law:
        """Returns the same law for another reason."""
        return Law(self.formula, self.unit, reason, self.scale)


def check_adam_beta_1(value: Any) -> str:
    """Returns an argument `adam_beta_1`, once it is known to be one.

    Raises:
        ScalingError: When it is neither "keep" nor "memory".
    """
    if not isinstance(value, str) or value not in ADAM_BETA_1:
        raise ScalingError(
            "`adam_beta_1` must be 'keep', or 'memory' for beta_1^r.\n"
            f"Received: adam_beta_1={show(value)}. The value of beta_1 itself belongs to the optimizer."
        )
    return value


def scale_memory(name: str, beta: Any, growth: Growth) -> tuple[float, str]:
    """Returns the decay per step that remembers as many examples: beta^r, unless the rule says otherwise."""
    return _inside(name, beta, lambda: growth.rule.memory(beta, float(growth.ratio)), growth), ""


def scale_whole(name: str, steps: Any, growth: Growth) -> tuple[int, str]:
    """Returns steps / r as the nearest positive integer, with a remark when that is not exact."""
    # bool is an int to Python; a period of True is a mistake.
    if isinstance(steps, bool) or not isinstance(steps, numbers.Integral) or not 1 <= int(steps) <= MAX_COUNT:
        raise ScalingError(
            f"`{name}` must be a whole number of steps, at least 1 and at most {MAX_COUNT:.0e}.\n"
            f"Received: {name}={show(steps)}. Give a positive integer, or leave it unset."
        )
    exact = Fraction(int(steps)) / growth.ratio
    whole = max(1, math.floor(exact + Fraction(1, 2)))
    return whole, "" if whole == exact else f"{plain(exact):.6g} rounded, because it must be a whole number of steps"


def _scale_lion_beta_1(name: str, beta_1: Any, growth: Growth) -> tuple[float, str]:
    beta_2 = growth.knobs["beta_2"]
    return _inside(name, beta_1, lambda: beta_1 * beta_2 ** (float(growth.ratio) - 1), growth), ""


def _keep_decay(name: str, beta: Any, growth: Growth) -> tuple[Any, str]:
    del growth
    _check_decay(name, beta)
    return beta, ""


def _check_decay(name: str, beta: Any) -> None:
    number = isinstance(beta, numbers.Real) and not isinstance(beta, bool)
    if not number or not 0 <= beta <= 1:
        raise ScalingError(
            f"`{name}` must be a number from 0 to 1, the decay of an average per step.\n"
            f"Received: {name}={show(beta)}. Correct it in the optimizer."
        )


def _inside(name: str, beta: Any, scale: Callable[[], float], growth: Growth) -> float:
    """Returns the scaled decay; 0 (no memory) and 1 (nothing else) stay what they are."""
    _check_decay(name, beta)
    if beta in (0, 1):
        return float(beta)
    try:
        scaled = scale()
    except OverflowError:
        scaled = math.inf
    if not 0 < scaled < 1:
        raise ScalingError(
            f"`{name}` must stay between 0 and 1, both excluded.\n"
            f"Received: {name}={beta!r}, which becomes {scaled!r} at batch ratio {float(growth.ratio):g} with rule "
            f"{growth.rule.name!r}. Use a ratio nearer to 1, or another rule."
        )
    return float(scaled)


def _kept(unit: str, reason: str) -> Law:
    return Law(UNCHANGED, unit, reason, lambda name, value, growth: (value, ""))


def _times(formula: str, unit: str, reason: str, factor: Callable[[Growth], float]) -> Law:
    def scale(name: str, value: Any, growth: Growth) -> tuple[float, str]:
        if not is_number(value) or float(value) < 0:
            raise ScalingError(
                f"`{name}` must be a finite number, 0 or more.\n"
                f"Received: {name}={show(value)}. Correct it in the optimizer."
            )
        scaled = float(value) * factor(growth)
        if not math.isfinite(scaled):
            raise ScalingError(
                f"`{name}` must stay a finite number.\n"
                f"Received: {name}={value!r}, which becomes {scaled!r} at batch ratio {float(growth.ratio):g} with "
                f"rule {growth.rule.name!r}. Use a ratio nearer to 1, or another rule."
            )
        return scaled, ""

    return Law(formula, unit, reason, scale)


def _root(growth: Growth) -> float:
    return 1 / math.sqrt(growth.ratio)


RATE = _times("x f", "per step", "one step takes the place of r", lambda growth: growth.factor)
MEMORY = Law("m^r", "per step", "remembers as many examples as before (Busbridge 2023, arXiv:2307.13813)", scale_memory)
# What `adam_beta_1` means. Kept, and not "unchanged": a reader who expects beta_1^r is told why.
ADAM_BETA_1 = {
    "keep": Law(
        "kept",
        "per step",
        "as SGD's momentum: beta_1^r (Malladi 2022; adam_beta_1='memory') holds while noise dominates, and takes up to "
        "3 times the steps from half the critical batch on",
        _keep_decay,
    ),
    "memory": MEMORY.because(
        "as asked for with adam_beta_1='memory': remembers as many examples as before (Malladi 2022, arXiv:2205.10287)"
    ),
}
LION_BETA_1 = Law(
    "b1 b2^(r-1)", "per step", "the newest batch weighs what the last r weighed together", _scale_lion_beta_1
)
MOMENTUM = _kept("per step", "stays with the batch, the rate makes up for it (Goyal 2017, arXiv:1706.02677)")
OWN_SIZE = _kept("per step", "the update is divided by its own size: kept, it shrinks by sqrt(r) like one gradient")
EPSILON_OUTSIDE = _times("/ sqrt(r)", "", "beside the root of squared noise (Malladi 2022, arXiv:2205.10287)", _root)
EPSILON_INSIDE = _times("/ r", "", "under the root, beside squared noise", lambda growth: float(1 / growth.ratio))
SUM_OF_SQUARES = _times("/ r^2", "", "1/r as many squares, 1/r as large", lambda growth: float(1 / growth.ratio**2))
PER_GRADIENT = _times(
    "/ r", "", "weighed against a sum of 1/r as many gradients", lambda growth: float(1 / growth.ratio)
)
FTRL_BETA = _times(
    "x f / r", "", "divided by the rate, in a sum of 1/r as many steps", lambda g: g.factor / float(g.ratio)
)
DECAY = _times(
    "x r / f", "per step", "decay per epoch stays: Keras applies w -= w * wd * lr", lambda g: float(g.ratio) / g.factor
)
WHOLE = Law("/ r", "steps", "as often per epoch as before", scale_whole)
EXACT = Law(
    "/ r",
    "steps",
    "over as many examples as before",
    lambda name, steps, growth: (plain(Fraction(steps) / growth.ratio), ""),
)
CLIPPING = _kept("", "bounds the gradient of a mean loss; less noise only makes it rarer")
LOSS_SCALE = _kept("", "the loss is a mean over examples, of any number")
MICRO_STEPS = _kept("micro-steps", "counts micro-steps, and each of them grows by r")
WEIGHTS = _kept("", "measured against weights or normalised updates, not gradients")
PER_MATRIX = _kept("", "part of the update of one matrix, not counted in training steps")
