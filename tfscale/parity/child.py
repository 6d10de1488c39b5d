"""One process of one run: build, fit, evaluate, predict, and leave the outcome.

    python -m tfscale.parity.child DIRECTORY

The directory holds the request; the outcome, or the failure, is written into it. Without a directory the
process is a server, which is forked for each directory that it is told; the user's script is unknown to it.
"""

import contextlib
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import flags

from tfscale.cluster import resolve_cluster
from tfscale.data_parallel import DataParallel
from tfscale.errors import ParityError
from tfscale.exact.plain_step import has_own_step
from tfscale.framework.canary import check_releases
from tfscale.parity.bitwise_run import begin_bitwise, make_data_parallel, train_bitwise
from tfscale.parity.child_process import end_process, end_with_parent, take_call
from tfscale.parity.outcome import (
    EPOCH_METRICS,
    EVALUATE,
    OPTIMIZER_STATE,
    PREDICT,
    WEIGHTS,
    Outcome,
    is_complete,
    load_left_out,
    load_start,
    save_outcome,
)
from tfscale.parity.readings import evaluate, optimizer_state, predict, weights_of
from tfscale.parity.request import Failure, Request, load_request, save_failure
from tfscale.parity.run_spec import BITWISE, CONTROL, KERAS, TFSCALE, RunSpec
from tfscale.parity.start import Start
from tfscale.parity.target import Target, load
from tfscale.parity.user_data import UserData, read_user_data
from tfscale.training.strategy import make_strategy, simulate_replicas

_TRACE_LINES = 12
_POLL_INTERVAL_S = 0.05


def perform(request: Request) -> Outcome:
    """Performs one run in this process."""
    check_releases(keras.__version__, tf.__version__, keras.backend.backend())
    # Before the user's script, which may start TensorFlow when it is imported.
    if request.run.kind == BITWISE:
        begin_bitwise(request.run, request.script.seed)
    strategy = _make_strategy(request.run)
    if request.run.in_float64:
        keras.config.set_floatx("float64")
    sys.path += [path for path in request.script.import_paths if path not in sys.path]
    keras.utils.set_random_seed(request.script.seed)
    build, data = (_load_script(target) for target in (request.script.build, request.script.data))
    user_data = read_user_data(
        data,
        seed=request.script.seed,
        epochs=request.script.epochs,
        global_batch=request.script.global_batch,
    )
    dp = None
    if request.run.kind == BITWISE and strategy is not None:
        dp = make_data_parallel(request, strategy, user_data.facts.global_batch)
    keras.utils.set_random_seed(request.script.seed)
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        model = _check_model(build(), request.script.build)
    if dp is not None:
        # One device looks at nothing and refuses code of one's own; the others look.
        check = "off" if request.run.num_replicas == 1 else "auto"
        return train_bitwise(dp.prepare(model, check=check), user_data, request.script.epochs)
    if request.run.kind == TFSCALE:
        dp = DataParallel(global_batch=user_data.facts.global_batch, devices=strategy)
        # What differs is this run's to show, in all of its quantities.
        model = dp.prepare(model, check="warn")
    return _train(model, user_data, request)


def _train(model: keras.Model, user_data: UserData, request: Request) -> Outcome:
    given = None if request.start is None else load_start(Path(request.start))
    start = Start(user_data.first_batch, given, one_rounding_away=request.run.kind == CONTROL)
    arguments = user_data.for_fit()
    arguments["callbacks"] = [*arguments.get("callbacks", ()), start]
    history = model.fit(**arguments, epochs=request.script.epochs)
    arrays = {
        WEIGHTS: weights_of(model),
        OPTIMIZER_STATE: optimizer_state(model),
        EPOCH_METRICS: {name: np.asarray(values) for name, values in history.history.items()},
    }
    left_out = {} if request.start is None else load_left_out(Path(request.start))
    for quantity, run in ((EVALUATE, evaluate), (PREDICT, predict)):
        if quantity in left_out:
            arrays[quantity] = {}
            continue
        try:
            arrays[quantity] = run(model, user_data)
        except Exception as error:
            # A model that is trained by a step of its own need not have a `call`, or a loss.
            if request.start is not None or not has_own_step(model, "train_step"):
                raise
            left_out[quantity], arrays[quantity] = Failure(type(error).__name__, str(error), "").first_line, {}
    return Outcome(start.weights, arrays, start.facts, user_data.facts, left_out)


def _make_strategy(run: RunSpec) -> tf.distribute.Strategy | None:
    """The strategy of this process; None for plain Keras on one device."""
    if run.kind not in (TFSCALE, KERAS, BITWISE):
        return None
    if run.num_workers == 1:
        simulate_replicas(run.num_replicas)
    if run.kind != KERAS:
        # A job that `verify` itself may be part of is not looked at.
        environ = {} if run.num_workers == 1 else {"TF_CONFIG": os.environ["TF_CONFIG"]}
        devices = run.num_replicas if run.num_workers == 1 else "auto"
        return make_strategy(devices, cluster=resolve_cluster(environ))
    if run.num_workers > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(run.num_replicas)])


def _load_script(target: Target) -> Any:
    function = load(target)
    # A script with absl flags defines them when it is imported; its functions get the defaults.
    flags.FLAGS.mark_as_parsed()
    return function


def _check_model(model: Any, target: Target) -> keras.Model:
    if not isinstance(model, keras.Model):
        raise ParityError(
            f"`{target}` must return a keras.Model.\n"
            f"Received: {model!r} of type {type(model).__name__}. Return the compiled model."
        )
    if not model.compiled:
        raise ParityError(
            f"`{target}` must return a compiled model.\n"
            f"Received: {model.name!r}, not compiled. Call `model.compile(...)` before returning it."
        )
    return model


def _wait_for_workers(directory: Path, num_workers: int) -> None:
    """Waits until the outcomes of all workers are there.

    TensorFlow ends a worker as soon as the chief is gone, even while it writes its outcome.
    """
    others = [directory.with_name(str(rank)) for rank in range(num_workers)]
    while not all(map(is_complete, others)):
        time.sleep(_POLL_INTERVAL_S)


def main(directory: Path) -> int:
    """Performs the request in `directory` and returns the exit status."""
    end_with_parent()
    try:
        request = load_request(directory)
        save_outcome(perform(request), directory)
        _wait_for_workers(directory, request.run.num_workers)
    except BaseException as error:
        trace = traceback.format_exc().strip().splitlines()[-_TRACE_LINES:]
        save_failure(Failure(type(error).__name__, str(error), "\n".join(trace)), directory)
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    end_process(main(Path(take_call())))
