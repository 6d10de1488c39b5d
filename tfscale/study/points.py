"""Which points are tried: spread evenly, the same ones at every batch?"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
MOST_DIMENSIONS = len(_PRIMES)


def halton_points(count: int, dimensions: int, *, seed: int = 0) -> list[list[float]]:
    """Returns points in the unit cube: any first part of them is spread more evenly than by chance.

    The digits of Halton's sequence are permuted, another way in every dimension: without that, coordinates of large
    bases go hand in hand.

    Args:
        count: How many.
        dimensions: At most 12.
        seed: Of the permutations.

    Example:
        >>> from tfscale.study.points import halton_points
        >>> [round(x, 4) for (x,) in halton_points(4, 1, seed=1)] == sorted(round(x, 4) for (x,) in halton_points(4, 1))
        False
        >>> sorted(int(4 * x) for (x,) in halton_points(4, 1))
        [0, 1, 2, 3]

    Reference:
        Owen 2017, "A randomized Halton algorithm in R", arXiv:1706.02808.
    """
    return [[_radical_inverse(index, prime, seed) for prime in _PRIMES[:dimensions]] for index in range(count)]


def spread_evenly(first: int, count: int) -> list[float]:
    """Returns places between 0 and 1: some of them evenly, and each further one in the middle of the widest gap.

    Where several gaps are as wide, in the one nearest to 1/2. A larger count begins with what a smaller one has.

    Args:
        first: How many are evenly spread.
        count: How many in all.

    Example:
        >>> from tfscale.study.points import spread_evenly
        >>> spread_evenly(4, 4), spread_evenly(4, 7)[4:]
        ([0.125, 0.375, 0.625, 0.875], [0.5, 0.25, 0.75])
    """
    places = [(place + 0.5) / first for place in range(first)]
    while len(places) < count:
        ordered = [0.0, *sorted(places), 1.0]
        gaps = [(after - before, (before + after) / 2) for before, after in itertools.pairwise(ordered)]
        # Differences that are alike but for their last digits are alike.
        places.append(max(gaps, key=lambda gap: (round(gap[0], 9), -round(abs(gap[1] - 0.5), 9), -gap[1]))[1])
    return places[:count]


def _radical_inverse(index: int, base: int, seed: int) -> float:
    value, factor, place = 0.0, 1.0, 0
    # Digits beyond those of the index are permuted too, so that no point lies on a corner.
    while factor > 1e-12:
        index, digit = divmod(index, base)
        factor /= base
        value += _permutation(base, place, seed)[digit] * factor
        place += 1
    return min(value, 1 - 1e-12)


_PERMUTATIONS: dict[tuple[int, int, int], list[int]] = {}


def _permutation(base: int, place: int, seed: int) -> Sequence[int]:
    key = (base, place, seed)
    if key not in _PERMUTATIONS:
        digits = list(range(base))
        random.Random(f"{seed}/{base}/{place}").shuffle(digits)
        _PERMUTATIONS[key] = digits
    return _PERMUTATIONS[key]
