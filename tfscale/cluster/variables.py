"""Are the variables of a source set, and which numbers do they hold?"""

import re
from collections.abc import Mapping, Sequence

from tfscale.cluster.shown import quoted
from tfscale.errors import ClusterError

ALONE = "TFSCALE_ALONE"
WAY_ROUND = f"Set {ALONE}=1 to train on this machine alone."

# `int` also takes signs, spaces, underscores and the digits of other scripts; no manager writes those.
_NUMBER = re.compile(r"[0-9]{1,9}")


def require(
    environ: Mapping[str, str],
    source: str,
    names: Sequence[Sequence[str]],
    way_out: str,
    seen: Sequence[str] = (),
) -> list[str]:
    """Returns the first name that is set of each group of alternatives.

    Args:
        environ: The environment variables, by name.
        source: Who sets these variables, for the message.
        names: Groups of alternatives; of each, one must be set.
        way_out: What to do when something is missing.
        seen: Other variables that are set, for the message.

    Raises:
        ClusterError: Of one group or more, none is set; the message lists them all.
    """
    found = [next((name for name in group if name in environ), None) for group in names]
    missing = [" or ".join(group) for group, name in zip(names, found, strict=True) if name is None]
    if missing:
        present = [f"{name}={quoted(environ[name])}" for name in dict.fromkeys([*found, *seen]) if name is not None]
        raise ClusterError(
            f"A job of {source} must say which workers it has, and which of them this is.\n"
            f"Received: {', '.join(present) or 'none of its variables'}; missing: {', '.join(missing)}. {way_out}"
        )
    return [name for name in found if name is not None]


def read_number(environ: Mapping[str, str], name: str, least: int, most: int, source: str) -> int:
    """Returns the number that a variable holds.

    Raises:
        ClusterError: The variable holds something else, or a number out of range.
    """
    text = environ[name]
    number = int(text) if _NUMBER.fullmatch(text) else -1
    if not least <= number <= most:
        raise ClusterError(
            f"`{name}` must be an integer from {least} to {most}.\n"
            f"Received: {text[:200]!r}, from {source}. "
            f"Correct it where it is set, or set TF_CONFIG, which is looked at first. {WAY_ROUND}"
        )
    return number


def read_rank(environ: Mapping[str, str], name: str, num_workers: int, source: str) -> int:
    """Returns the rank that a variable holds, from 0 to `num_workers - 1`.

    Raises:
        ClusterError: The variable holds something else.
    """
    return read_number(environ, name, 0, num_workers - 1, source)
