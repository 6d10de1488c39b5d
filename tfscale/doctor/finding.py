"""What is one thing that the doctor found?"""

from collections.abc import Iterable
from dataclasses import dataclass

OK, WARNING, ERROR = "ok", "warning", "error"
LEVELS = (OK, WARNING, ERROR)


@dataclass(frozen=True)
class Finding:
    """One check and its outcome.

    Args:
        level: "ok", "warning" (the run may be slow, or open to others) or "error" (it will not start).
        check: What was looked at.
        found: What was met.
        way_out: What to do; empty where all is well.
    """

    level: str
    check: str
    found: str
    way_out: str = ""


def worst_level(findings: Iterable[Finding]) -> str:
    """Returns the worst level of all; "ok" of none.

    Example:
        >>> from tfscale.doctor.finding import Finding, worst_level
        >>> worst_level([Finding("ok", "a", "b"), Finding("warning", "a", "b", "c")])
        'warning'
    """
    return max((finding.level for finding in findings), key=LEVELS.index, default=OK)
