"""`tfscale plan --calibrate`: the command line's way to branches."""

from __future__ import annotations

import os
from collections.abc import Callable

from tfscale.parity.target import find_target
from tfscale.plan.critical_batch import CriticalBatch
from tfscale.plan.source import Trace, check_same_model
from tfscale.trials.branching import calibrate
from tfscale.trials.measuring import import_like_python


def calibration(build: str, data: str) -> Callable[[Trace], CriticalBatch]:
    """Returns what calibrates at a trace's batch.

    Args:
        build: As module:name or file.py:name.
        data: Likewise.

    Raises:
        ParityError: When there is no such file.
    """
    import_like_python([os.getcwd()])
    targets = find_target(build, "build"), find_target(data, "data")

    def calibrated(trace: Trace) -> CriticalBatch:
        batch = max(1, round(trace.batch))
        return calibrate(*targets, batch=batch, check=lambda facts: check_same_model(trace, [facts], build))

    return calibrated
