"""Which cores has this worker?"""

import os


def find_cores() -> tuple[int, ...]:
    """Returns the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))
