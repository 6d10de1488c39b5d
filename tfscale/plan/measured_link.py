"""What has a run found of the link between its replicas?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tfscale.errors import MeasureError
from tfscale.plan.link import Link

_RECORD = "run.jsonl"


def link_of_run(directory: Path) -> Link:
    """Reads the link that was measured when a run of several replicas began, and last where it went on.

    Args:
        directory: As given to `dp.callbacks`.

    Raises:
        MeasureError: When there is none in it.
    """
    path = directory / _RECORD
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise _no_link(directory, str(error)) from error
    links = [found for found in map(_link_in, lines) if found is not None]
    if not links:
        raise _no_link(directory, f"{_RECORD} without a link")
    rate, latency_s, processor_s = links[-1]
    return Link(f"of {directory}, {rate / 1e6:.3g} MB/s", rate, latency_s, processor_s)


def _link_in(text: str) -> tuple[float, float, float] | None:
    """The numbers of a line; None where it has none, as half of a line that a kill has left."""
    try:
        found: Any = json.loads(text)["link"]
        numbers = [float(found[name]) for name in ("bytes_per_s", "latency_s", "processor_s_per_byte")]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_one = all(math.isfinite(each) and each >= 0 for each in numbers) and numbers[0] >= 1
    return (numbers[0], numbers[1], numbers[2]) if is_one else None


def _no_link(directory: Path, received: str) -> MeasureError:
    return MeasureError(
        "A directory that is given as a link must be that of a run in which one was measured.\n"
        f"Received: {str(directory)[:200]}: {received[:200]}. Train on two workers or more "
        "with `dp.callbacks(DIRECTORY)`, or give a rate, such as --link 25gbit."
    )
