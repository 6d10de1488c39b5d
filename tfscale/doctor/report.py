"""How do findings look, for a person and for a script?"""

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tfscale.doctor.all_reduce_check import Timing, as_json, table
from tfscale.doctor.finding import ERROR, OK, WARNING, Finding, worst_level

# What is to be copied must stay in one piece.
_WRAP: dict[str, Any] = {"width": 110, "break_long_words": False, "break_on_hyphens": False}
_INDENT = " " * 23


def as_text(title: str, findings: Sequence[Finding], timings: Sequence[Timing], num_replicas: int) -> str:
    """Returns what a person reads.

    Args:
        title: The first line.
        findings: All of them.
        timings: Of the all-reduce; none where there was none.
        num_replicas: Of the job.
    """
    lines = [title, ""]
    for finding in findings:
        head = f"  {finding.level:<8} {finding.check:<11} "
        wrapped = textwrap.wrap(finding.found, **_WRAP) or [""]
        lines.append(head + wrapped[0])
        lines += [_INDENT + line for line in wrapped[1:]]
        if finding.level != OK and finding.way_out:
            lines += [_INDENT + line for line in textwrap.wrap("-> " + finding.way_out, **_WRAP)]
    if timings:
        lines += ["", f"all-reduce of known numbers over {num_replicas} replicas:"]
        lines += ["  " + line for line in table(timings, num_replicas)]
    counts = Counter(finding.level for finding in findings)
    return "\n".join([*lines, "", f"{counts[ERROR]} error(s), {counts[WARNING]} warning(s)."]) + "\n"


def as_json_text(
    place: dict[str, Any], findings: Sequence[Finding], timings: Sequence[Timing], num_replicas: int
) -> str:
    """Returns one JSON object: "status" is the worst level, "findings" are in the order in which they were made."""
    report = {
        "status": worst_level(findings),
        **place,
        "findings": [asdict(finding) for finding in findings],
        "all_reduce": as_json(timings, num_replicas),
    }
    return json.dumps(report, indent=2) + "\n"
