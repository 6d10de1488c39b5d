"""A short training, in the process that calls `measure`, which must have started nothing of TensorFlow."""

from __future__ import annotations

import gc
import hashlib
import resource
import statistics
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from benchmarks import models
from benchmarks.clock import StepClock
from benchmarks.logical.plan import BITS, LOGICAL, MICRO, ROWS, STEPS, WARM_UP, WITH, Cost


def measure(model_name: str, num_replicas: int, way: str) -> Cost:
    """Trains a model for some steps of one call each.

    Args:
        model_name: One of `plan.MODELS`.
        num_replicas: Logical CPUs.
        way: One of `plan.WAYS`.
    """
    rows = ROWS[model_name]
    given: dict[str, Any] = {"global_batch": LOGICAL * rows, "steps_per_execution": None, "seed": 1}
    if way == MICRO:
        given["micro_batch"] = rows
    elif way in (WITH, BITS):
        given |= {"logical_replicas": LOGICAL, "deterministic": way == BITS}
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(**given)
    with dp.scope():
        model = dp.prepare(models.build(model_name, keras))
        model.compile(models.make_optimizer(keras), models.make_loss(keras))
    x, y = models.images()
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(dp.global_batch).take(WARM_UP + STEPS)
    # As in a script's own process; see `benchmarks.check.first_step`.
    gc.unfreeze()
    gc.collect()
    clock = StepClock(reads_loss=True)
    history = model.fit(data, epochs=1, verbose=0, callbacks=[clock])
    times, cpu_times = np.diff(np.array(clock.times), axis=0).T
    packages = {"tensorflow": tf, "keras": keras, "numpy": np, "tfscale": tfscale}
    return Cost(
        float(times[0]),
        statistics.median(times[WARM_UP:].tolist()),
        float(cpu_times[WARM_UP:].mean()),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        history.history["loss"][-1],
        hashlib.sha256(b"".join(each.tobytes() for each in model.get_weights())).hexdigest()[:16],
        {name: package.__version__ for name, package in packages.items()},
    )
