"""One process of a study: run one trial, and leave its result.

    python -m tfscale.trials.child REQUEST

Without a request the process is a server, which is forked for each request that it is told.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import keras  # noqa: F401, imported before the fork
import tensorflow as tf

from tfscale.parity.child_process import end_process, end_with_parent, take_call
from tfscale.parity.target import Target, load
from tfscale.study.goal import Goal
from tfscale.study.result import Trial, TrialResult, write_result
from tfscale.trials.looking import look
from tfscale.trials.training import Limits, read_arrays, train_trial


def perform(request: dict[str, Any]) -> None:
    """Runs one request in this process."""
    sys.path[:0] = [path for path in request["import_paths"] if path not in sys.path]
    tf.config.threading.set_intra_op_parallelism_threads(request["threads"])
    if "answer" in request:
        look(request)
        return
    folder = Path(request["folder"])
    trial, begun_s = Trial(**request["trial"]), time.perf_counter()
    try:
        build, data = (load(Target(*request[name])) for name in ("build", "data"))
        goal, limits = Goal(**request["goal"]), Limits(request["limit"], request["budget"])
        result = train_trial(build, read_arrays(data), trial, goal, limits, micro_batch=request["micro_batch"])
    except Exception as error:
        # A row with its error; the others go on.
        traceback.print_exc()
        result = TrialResult(trial, math.inf, reason_of(error), time.perf_counter() - begun_s)
    write_result(folder, result)


def reason_of(error: Exception) -> str:
    """What a row says of the error that ended its trial."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]


def run_request(path: str, perform: Callable[[dict[str, Any]], None]) -> NoReturn:
    """Performs the request in a file, and ends this process, which also ends with the one that started it.

    Args:
        path: Of the request. Its `cores`, if it has some, are those on which this process stays from here on.
        perform: Does what it says.
    """
    end_with_parent()
    # So a process that is ended by force has left what it wrote.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    status = 0
    try:
        request = json.loads(Path(path).read_text(encoding="utf-8"))
        if "cores" in request and hasattr(os, "sched_setaffinity"):
            # Before TensorFlow starts its threads, which stay there too.
            os.sched_setaffinity(0, request["cores"])
        perform(request)
    except BaseException:
        traceback.print_exc()
        status = 1
    end_process(status)


if __name__ == "__main__":
    run_request(take_call(), perform)
