"""Is this a batch ratio?"""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import Any

from tfscale.errors import ScalingError


def check_ratio(ratio: Any) -> Fraction:
    """Returns the batch ratio r = global batch / reference batch, exactly.

    Args:
        ratio: An integer, a `Fraction` or a float; positive and finite. A `Fraction` keeps what is counted in steps
            exact; a float is taken at its binary value.

    Raises:
        ScalingError: When it is not a positive number.

    Example:
        >>> check_ratio(8), check_ratio(1.5)
        (Fraction(8, 1), Fraction(3, 2))
    """
    # bool is an int to Python; a ratio of True is a mistake.
    if is_number(ratio) and float(ratio) > 0:
        return exact_fraction(ratio)
    raise ScalingError(
        "The batch ratio must be a positive, finite number: the global batch divided by the reference batch.\n"
        f"Received: {show(ratio)}. Give, for example, 512 / 64, or 1 to change nothing."
    )


def is_number(value: Any) -> bool:
    """Whether a value is a real number that a float can hold; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def show(value: Any) -> str:
    """Returns a value as a message shows it; Python itself refuses to write integers of thousands of digits.

    Example:
        >>> from tfscale.scaling.ratio import show
        >>> show(0.5), show(10**400), show(-(10**9000))
        ('0.5', 'an integer of 1329 bits', 'an integer of 29898 bits')
    """
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    try:
        return repr(value)[:200]
    except ValueError:
        return type(value).__name__


def exact_fraction(number: numbers.Real) -> Fraction:
    """Returns a number as a fraction: a rational one as it is, a float at its binary value."""
    if isinstance(number, numbers.Rational):
        return Fraction(int(number.numerator), int(number.denominator))
    return Fraction(float(number))


def plain(number: Fraction) -> int | float:
    """Returns a fraction as an integer if it is whole, else as the nearest float."""
    return int(number) if number.denominator == 1 else float(number)
