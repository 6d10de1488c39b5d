"""Which calls of a step are looked at?"""

from __future__ import annotations

# Of what has not shown in so many calls there will be little to see.
LAST_LOOK = 1024
"""The last call that is looked at."""


def is_due(calls: int) -> bool:
    """Whether a call is looked at, where not all are: the 1st, 2nd, 4th, 8th ... up to the last.

    Args:
        calls: That have begun, with it.

    Example:
        >>> [calls for calls in range(1, 5000) if is_due(calls)][-3:]
        [256, 512, 1024]
    """
    return calls <= LAST_LOOK and calls.bit_count() == 1
