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
    if isinstance(ratio, numbers.Real) and not isinstance(ratio, bool) and math.isfinite(ratio) and float(ratio) > 0:
        return exact_fraction(ratio)
    raise ScalingError(
        "The batch ratio must be a positive, finite number: the global batch divided by the reference batch.\n"
        f"Received: {ratio!r}. Give, for example, 512 / 64, or 1 to change nothing."
    )


def exact_fraction(number: numbers.Real) -> Fraction:
    """Returns a number as a fraction: a rational one as it is, a float at its binary value."""
    if isinstance(number, numbers.Rational):
        return Fraction(int(number.numerator), int(number.denominator))
    return Fraction(float(number))


def plain(number: Fraction) -> int | float:
    """Returns a fraction as an integer if it is whole, else as the nearest float."""
    return int(number) if number.denominator == 1 else float(number)
