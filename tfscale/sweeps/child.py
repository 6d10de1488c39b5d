"""One process of a sweep: call the objective once, and leave its row.

    python -m tfscale.sweeps.child REQUEST

Without a request the process is a server, which is forked for each request that it is told.
"""

from __future__ import annotations

import inspect
import math
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfscale.errors import StudyError
from tfscale.parity.child_process import take_call
from tfscale.parity.target import Target, load
from tfscale.sweeps.outcome import ENDED, FAILED, PRUNED, Outcome, write_outcome
from tfscale.sweeps.trial import Pruned, SweepTrial
from tfscale.trials.child import reason_of, run_request


def perform(request: dict[str, Any]) -> None:
    """Runs one request in this process."""
    sys.path[:0] = [path for path in request["import_paths"] if path not in sys.path]
    tf.config.threading.set_intra_op_parallelism_threads(request["threads"])
    folder, number, parameters = Path(request["folder"]), request["number"], request["parameters"]
    begun_s = time.perf_counter()
    trial = SweepTrial(number, folder, direction=request["direction"], prunes=request["prunes"])
    state, value, reason = ENDED, None, ""
    try:
        objective = load(Target(*request["objective"]))
        more = {"trial": trial} if "trial" in inspect.signature(objective).parameters else {}
        value = _number(objective(**parameters, **more))
    except Pruned as ending:
        state, value, reason = PRUNED, trial.last, str(ending)
    except Exception as error:
        # A row with its error; the others go on.
        traceback.print_exc()
        state, reason = FAILED, reason_of(error)
    device = (tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("CPU"))[0].device_type
    write_outcome(folder, Outcome(number, parameters, state, value, reason, time.perf_counter() - begun_s, device))


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise StudyError(f"the objective must return a finite number. Received: {str(value)[:100]}")
    return number


if __name__ == "__main__":
    run_request(take_call(), perform)
