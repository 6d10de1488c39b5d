"""How does the rate rise from the reference's to the grown batch's?"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tfscale.errors import ScalingError
from tfscale.scaling.ratio import check_ratio, exact_fraction, is_number, show
from tfscale.scaling.rules import LinearRule, ScalingRule

AUTO_EPOCHS = 5


def warmup_factor(position: float, factor: float, warmup_steps: float) -> float:
    """Returns the factor of the rate during and after the warm-up.

    `1 + (f - 1) * min(1, p / w)`: at the first step the reference rate, after w steps f times it, and monotone between.

    Args:
        position: p, in steps of the reference run, 0 or more: step * r.
        factor: f, the factor after the warm-up.
        warmup_steps: w, in steps of the reference run; 0 for none.

    Example:
        >>> from tfscale.scaling import warmup_factor
        >>> [warmup_factor(position, 8.0, 100) for position in (0, 50, 100, 1000)]
        [1.0, 4.5, 8.0, 8.0]
    """
    if position >= warmup_steps:
        return factor
    return 1 + (factor - 1) * (position / warmup_steps)


def count_warmup_steps(
    warmup_epochs: Any,
    *,
    rule: ScalingRule,
    ratio: Any,
    reference_batch: int,
    examples_per_epoch: int | None = None,
    epochs: float | None = None,
) -> Fraction:
    """Returns the length of the warm-up in steps of the reference run.

    `w = warmup_epochs * examples_per_epoch / reference_batch`, exactly. `"auto"` is 5 epochs for the linear rule at a
    ratio above 1, and none otherwise.

    Args:
        warmup_epochs: Epochs, fractions of one too, or `"auto"`.
        rule: The rule of the rate.
        ratio: The batch ratio.
        reference_batch: Examples in a step of the reference run.
        examples_per_epoch: Needed as soon as there is a warm-up.
        epochs: The length of the run, if it is known, to refuse a warm-up that is longer.

    Raises:
        ScalingError: When `warmup_epochs` is no number of 0 or more nor `"auto"`, when there is a warm-up and
            `examples_per_epoch` is not given, or when the warm-up is longer than the run.

    Reference:
        Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv:1706.02677, section 2.2.

    Example:
        >>> from tfscale import LinearRule
        >>> from tfscale.scaling import count_warmup_steps
        >>> count_warmup_steps("auto", rule=LinearRule(), ratio=8, reference_batch=64, examples_per_epoch=50_000)
        Fraction(15625, 4)
    """
    grown = check_ratio(ratio)
    length = check_warmup_epochs(warmup_epochs)
    if length is None:
        length = Fraction(AUTO_EPOCHS if isinstance(rule, LinearRule) and grown > 1 else 0)
    # From the reference rate to the reference rate there is nothing to warm up.
    if length == 0 or grown == 1:
        return Fraction(0)
    if epochs is not None and length > epochs:
        raise ScalingError(
            f"The warm-up must not be longer than the run of {float(epochs):g} epochs.\n"
            f"Received: warmup_epochs={warmup_epochs!r}, which is {float(length):g} epochs. "
            "Shorten it, or set it to 0 for none."
        )
    if examples_per_epoch is None:
        raise ScalingError(
            "A warm-up must know how many steps an epoch has.\n"
            f"Received: warmup_epochs={warmup_epochs!r} without examples_per_epoch. "
            "Give examples_per_epoch to the recipe, or warmup_epochs=0 for no warm-up."
        )
    return length * examples_per_epoch / reference_batch


def check_warmup_epochs(warmup_epochs: Any) -> Fraction | None:
    """Returns the number of epochs, exactly; None for "auto".

    Raises:
        ScalingError: When it is neither.
    """
    if isinstance(warmup_epochs, str) and warmup_epochs == "auto":
        return None
    if not is_number(warmup_epochs) or warmup_epochs < 0:
        raise ScalingError(
            "`warmup_epochs` must be a number of epochs, 0 or more, or 'auto'.\n"
            f"Received: warmup_epochs={show(warmup_epochs)}. Use 0 for no warm-up."
        )
    return exact_fraction(warmup_epochs)
