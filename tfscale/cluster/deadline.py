"""How long may the workers of a job take to meet?"""

import math
from collections.abc import Mapping
from typing import Any

from tfscale.cluster.shown import quoted
from tfscale.errors import ClusterError

TIMEOUT_S = "TFSCALE_TIMEOUT_S"
DEFAULT_TIMEOUT_S = 120.0


def read_timeout_s(given: Any, environ: Mapping[str, str]) -> float:
    """Returns the seconds for which a worker waits for the others; 0 for not at all.

    Args:
        given: The script's number; None leaves it to the environment.
        environ: `TFSCALE_TIMEOUT_S`, else 120 s.

    Raises:
        ClusterError: It is no number of seconds.

    Example:
        >>> from tfscale.cluster.deadline import read_timeout_s
        >>> read_timeout_s(None, {}), read_timeout_s(None, {"TFSCALE_TIMEOUT_S": "600"}), read_timeout_s(5, {})
        (120.0, 600.0, 5.0)
    """
    name, value = ("timeout_s", given) if given is not None else (TIMEOUT_S, environ.get(TIMEOUT_S, DEFAULT_TIMEOUT_S))
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ClusterError(
            f"`{name}` must be a number of seconds, or 0 to start without waiting for the other workers.\n"
            f"Received: {name}={quoted(value)}. Leave it out for {DEFAULT_TIMEOUT_S:g} s."
        )
    return seconds
