"""The first step of one model, in the process that calls `measure`, which must have started nothing of TensorFlow."""

from __future__ import annotations

import functools
import gc
import logging
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from benchmarks.check import models
from benchmarks.check.plan import BATCH, FirstStep
from benchmarks.models import make_loss, make_optimizer
from tfscale.training.check.step_check import StepCheck


def measure(model_name: str, num_replicas: int, check: str) -> FirstStep:
    """Builds and compiles a model, then takes the time of its first `fit`: one batch, tracing included.

    Args:
        model_name: One of `plan.MODELS`.
        num_replicas: Logical CPUs.
        check: Of `DataParallel.prepare`.
    """
    tfscale.simulate_replicas(num_replicas)
    keras.utils.set_random_seed(0)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=0)
    with dp.scope():
        model = dp.prepare(models.build(model_name), check=check)
        model.compile(make_optimizer(keras), make_loss(keras), metrics=["accuracy"])
    x, y = models.batch(model_name)
    check_s, messages = _watch_checks(), _watch_messages()
    # A process that was forked spares its garbage collector what was imported before. A script's own does not, and
    # has it looked through whenever a step is traced; the first look copies it, which is the fork's doing.
    gc.unfreeze()
    gc.collect()
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    history = model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
    seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    packages = {"tensorflow": tf, "keras": keras, "numpy": np, "tfscale": tfscale}
    versions = {name: package.__version__ for name, package in packages.items()}
    return FirstStep(seconds, cpu_s, tuple(check_s), history.history["loss"][0], tuple(messages), versions)


def _watch_checks() -> list[float]:
    """Has the seconds of each check noted: that one was made is not to be taken from its cost."""
    check_s: list[float] = []
    whole: Callable[[StepCheck, Any], None] = StepCheck.__call__

    @functools.wraps(whole)
    def call(self: StepCheck, batch: Any) -> None:
        start_s = time.perf_counter()
        try:
            whole(self, batch)
        finally:
            check_s.append(time.perf_counter() - start_s)

    StepCheck.__call__ = call  # type: ignore[method-assign]
    return check_s


def _watch_messages() -> list[str]:
    messages: list[str] = []

    class Note(logging.Handler):
        """Keeps what is logged."""

        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    log = logging.getLogger(StepCheck.__module__)
    log.setLevel(logging.INFO)
    log.addHandler(Note())
    return messages
