"""By what factor does the learning rate grow with the batch?

A rule answers for the rate alone. What else depends on the batch follows from the ratio and that factor, and is
written down per knob in `laws.py`. All rules share one assumption: the gradient of a batch of B examples is the true
gradient plus noise whose variance is proportional to 1/B, and one larger step takes the place of r small ones.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tfscale.errors import ScalingError
from tfscale.scaling.ratio import is_number


class ScalingRule(abc.ABC):
    """What every rule has: `rule(ratio)` is the factor of the learning rate. A rule of one's own may be a subclass.

    `factor = rule(ratio)` with `rule(1) == 1`. `memory(beta, ratio)` is the decay per step of an average that must
    remember as many *examples* as before: beta^r, since r steps became one (Busbridge et al. 2023, arXiv:2307.13813).

    Attributes:
        name: As in a table and in a config.
        source: The paper, with its arXiv number.
        shown_up_to: The largest ratio at which the rule was seen to hold; None if there is no such number.
        shown_by: Where it was seen.

    Example:
        >>> from tfscale.scaling import ScalingRule
        >>> class CautiousRule(ScalingRule):
        ...     def __call__(self, ratio):
        ...         return min(ratio, 4.0)
        >>> CautiousRule()(8), CautiousRule().memory(0.5, 2)
        (4.0, 0.25)
    """

    name: ClassVar[str] = "custom"
    source: ClassVar[str] = "the caller's own"
    shown_up_to: ClassVar[float | None] = None
    shown_by: ClassVar[str] = ""

    @abc.abstractmethod
    def __call__(self, ratio: float) -> float:
        """Returns the factor of the learning rate."""

    def memory(self, beta: float, ratio: float) -> float:
        """Returns the decay per step that remembers as many examples as `beta` did."""
        return beta**ratio


@dataclass(frozen=True)
class LinearRule(ScalingRule):
    """The rate grows with the batch: `factor = r`. For SGD, with or without momentum.

    One step over r batches moves as far as r steps over one batch each, as long as the weights move little in between.
    Early in training they do not: hence a warm-up from the reference rate over 5 epochs. Momentum and weight decay
    (`w -= w * wd * lr`) stay.

    Validity: ResNet-50 on ImageNet keeps its accuracy from a batch of 256 up to 8192 (r = 32), and loses it beyond.
    It must fail when the rate itself becomes unstable, near 2 / curvature.

    Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv:1706.02677.

    Example:
        >>> from tfscale import LinearRule
        >>> LinearRule()(8)
        8.0
    """

    name: ClassVar[str] = "linear"
    source: ClassVar[str] = "Goyal et al. 2017, arXiv:1706.02677"
    shown_up_to: ClassVar[float | None] = 32.0
    shown_by: ClassVar[str] = "ResNet-50 on ImageNet, batches of 256 to 8192"

    def __call__(self, ratio: float) -> float:
        """Returns r."""
        return float(ratio)


@dataclass(frozen=True)
class SqrtRule(ScalingRule):
    """The rate grows with the root of the batch: `factor = sqrt(r)`. For Adam and its kin.

    They divide by the gradient's root mean square. Where noise dominates it, that shrinks by sqrt(r) on a batch r times
    larger, and so the step grows by sqrt(r) unasked; the rate adds the other sqrt(r). With it: beta_2^r for the average
    of squares, epsilon / sqrt(r) (outside the root; / r inside it), decoupled weight decay x sqrt(r). beta_1 is kept:
    the paper's beta_1^r (`adam_beta_1="memory"`) forgets too fast from half the critical batch on.

    Validity: while noise dominates the second moment, that is, below the critical batch; above it the factor is too
    small early. The authors confirm it on vision and language models; the noisy quadratic of this library's tests, at
    ratio 8; `benchmarks/equal_progress/betas.py`, up to ratio 16.

    Source: Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", arXiv:2205.10287.

    Example:
        >>> from tfscale import SqrtRule
        >>> SqrtRule()(16)
        4.0
    """

    name: ClassVar[str] = "sqrt"
    source: ClassVar[str] = "Malladi et al. 2022, arXiv:2205.10287"
    shown_up_to: ClassVar[float | None] = 16.0
    shown_by: ClassVar[str] = "AdamW on handwritten digits, batches of 16 to 256"

    def __call__(self, ratio: float) -> float:
        """Returns sqrt(r)."""
        return math.sqrt(ratio)


@dataclass(frozen=True)
class NoRule(ScalingRule):
    """The rate stays: `factor = 1`. What is counted in steps is stretched all the same.

    For those who tune the rate for the new batch themselves; and the right rule for Adagrad, whose sum of squares falls
    by r^2 where noise dominates, so that the step grows by r unasked (derived in `optimizer_table.py`).

    Validity: by itself it promises nothing: a run with SGD or Adam makes less progress per epoch.

    Example:
        >>> from tfscale import NoRule
        >>> NoRule()(8)
        1.0
    """

    name: ClassVar[str] = "none"
    source: ClassVar[str] = "-"

    def __call__(self, ratio: float) -> float:
        """Returns 1."""
        return 1.0


@dataclass(frozen=True)
class AdaScaleRule(ScalingRule):
    """The rate grows by a gain that is measured at every step: `1 <= gain <= r`. For SGD.

    `gain = (v / B + |mu|^2) / (v / n + |mu|^2)`, with v the variance of one example's gradient, mu its mean, B the
    reference batch and n = r B: what one step on n examples is worth in steps on B of them. The schedule advances by
    the gain, so that a run needs as many steps as the noise asks for; in epochs more than the reference run.

    Validity: where the linear rule breaks, early in training and on large batches, the gain falls towards 1 by itself;
    hence no warm-up. It needs two replicas to measure with, and a budget in steps of the reference run, not epochs.

    Source: Johnson et al. 2020, "AdaScale SGD", arXiv:2007.05105.

    Example:
        >>> from tfscale import AdaScaleRule
        >>> AdaScaleRule()(8)
        8.0
    """

    name: ClassVar[str] = "adascale"
    source: ClassVar[str] = "Johnson et al. 2020, arXiv:2007.05105"

    def __call__(self, ratio: float) -> float:
        """Returns r, the most that the gain can be."""
        return float(ratio)


@dataclass(frozen=True)
class PowerRule(ScalingRule):
    """The rate grows with a power of the batch: `factor = r^exponent`. Linear at 1, the root at 1/2, none at 0.

    Args:
        exponent: The power.
    """

    exponent: float
    name: ClassVar[str] = "power"

    def __call__(self, ratio: float) -> float:
        """Returns r^exponent."""
        return float(ratio**self.exponent)


@dataclass(frozen=True)
class FixedFactor(ScalingRule):
    """The rate is multiplied by a given number, at any ratio but 1.

    Args:
        factor: The number; positive and finite.
    """

    factor: float
    name: ClassVar[str] = "factor"

    def __call__(self, ratio: float) -> float:
        """Returns the factor."""
        return self.factor if ratio != 1 else 1.0


@dataclass(frozen=True)
class CallableRule(ScalingRule):
    """A function of the caller's own.

    Args:
        function: From the ratio to the factor.
    """

    function: Callable[[float], float]
    name: ClassVar[str] = "callable"

    def __call__(self, ratio: float) -> float:
        """Returns what the function returns."""
        return self.function(ratio)


NAMED_RULES: dict[str, ScalingRule] = {rule.name: rule for rule in (LinearRule(), SqrtRule(), NoRule(), AdaScaleRule())}
RULE_NAMES = ("auto", *NAMED_RULES)


def resolve_rule(rule: Any, *, auto: ScalingRule | None = None) -> ScalingRule:
    """Returns the rule that an argument `rule` means.

    Args:
        rule: `"linear"`, `"sqrt"`, `"none"`, `"adascale"`, a `ScalingRule`, a function from the ratio to the factor,
            or the factor itself as a number; `"auto"` means `auto`.
        auto: The rule of the optimizer at hand; None when there is none, and then `"auto"` is refused.

    Raises:
        ScalingError: When it is none of these.

    Example:
        >>> from tfscale.scaling import resolve_rule
        >>> resolve_rule("sqrt")(4), resolve_rule(lambda ratio: ratio**0.75)(16), resolve_rule(3.0)(8)
        (2.0, 8.0, 3.0)
    """
    if isinstance(rule, ScalingRule):
        return rule
    if isinstance(rule, str) and rule in NAMED_RULES:
        return NAMED_RULES[rule]
    if rule == "auto" and auto is not None:
        return auto
    # A class is callable too, and one forgets the parentheses easily.
    if isinstance(rule, type) and issubclass(rule, ScalingRule):
        way_out = f"Give an instance of it: {rule.__name__}()."
    elif callable(rule):
        return CallableRule(rule)
    elif isinstance(rule, (int, float)) and is_number(rule) and rule > 0:
        return FixedFactor(float(rule))
    else:
        names = ", ".join(repr(name) for name in (RULE_NAMES if auto is not None else NAMED_RULES))
        way_out = f"Use one of {names}, a positive factor, or a function of the batch ratio."
    raise ScalingError(f"`rule` must say by what factor the learning rate grows.\nReceived: rule={rule!r}. {way_out}")


def rate_factor(rule: ScalingRule, ratio: float) -> float:
    """Returns `rule(ratio)`, checked.

    Raises:
        ScalingError: When the factor is not a positive number, is measured in training, or the rule changes the rate at
            ratio 1.
    """
    if isinstance(rule, AdaScaleRule):
        raise ScalingError(
            "A rule must give one factor for the whole run here.\n"
            f"Received: rule {rule.name!r}, whose factor is measured at every step. Make DataParallel with "
            "rule='adascale' and use `dp.optimizer` on an SGD, or choose 'linear'."
        )
    for at in (1.0, float(ratio)):
        try:
            factor = rule(at)
        except OverflowError:
            factor = math.inf
        if not is_number(factor) or factor <= 0:
            raise ScalingError(
                "A rule must return a positive, finite factor for the learning rate.\n"
                f"Received: {factor!r} from rule {rule.name!r} at batch ratio {at:g}. Correct the rule, or use 'none'."
            )
        if at == 1 and factor != 1:
            raise ScalingError(
                "A rule must leave the learning rate alone at batch ratio 1.\n"
                f"Received: factor {factor!r} from rule {rule.name!r} at batch ratio 1. "
                "Divide the rule by its value at 1, or tune the rate for the reference batch."
            )
    return float(factor)
