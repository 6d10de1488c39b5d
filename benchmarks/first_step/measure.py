"""The first calls of one model, in the process that calls `measure`, which must have started nothing of TensorFlow."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from benchmarks import models
from benchmarks.check.models import convolution, tokens, transformer
from benchmarks.clock import StepClock
from benchmarks.first_step.plan import KERAS, PER_REPLICA_BATCH, STEPS, Growth
from benchmarks.models import make_loss, make_optimizer

_IMAGE = (32, 32, 3)


def measure(model_name: str, num_replicas: int, way: str) -> Growth:
    """Builds and compiles a model, and takes the times of its first `fit`, `evaluate` and `predict`.

    Args:
        model_name: One of `plan.MODELS`.
        num_replicas: Logical CPUs.
        way: One of `plan.WAYS`.
    """
    batch = PER_REPLICA_BATCH * num_replicas
    tfscale.simulate_replicas(num_replicas)
    keras.utils.set_random_seed(0)
    model = _compiled(model_name, num_replicas, way)
    x, y = _rows(model_name, batch * STEPS)
    # As in a script's own process; see `benchmarks.check.first_step`.
    gc.unfreeze()
    gc.collect()
    clock = StepClock()
    history = model.fit(x, y, batch_size=batch, shuffle=False, epochs=1, verbose=0, callbacks=[clock])
    one = tf.nest.map_structure(lambda each: each[:batch], (x, y))
    evaluate_cpu_s = _cpu_s(lambda: model.evaluate(*one, batch_size=batch, verbose=0))
    predict_cpu_s = _cpu_s(lambda: model.predict(one[0], batch_size=batch, verbose=0))
    # Before the graphs are written out to be counted, which takes memory of its own.
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    packages = {"tensorflow": tf, "keras": keras, "numpy": np, "tfscale": tfscale}
    return Growth(
        *clock.first(),
        statistics.median(np.diff([seconds for seconds, _ in clock.times[1:]])),
        evaluate_cpu_s,
        predict_cpu_s,
        _num_nodes(),
        peak_mb,
        history.history["loss"][0],
        {name: package.__version__ for name, package in packages.items()},
    )


def _compiled(model_name: str, num_replicas: int, way: str) -> keras.Model:
    build = {"mlp": lambda: models.build("mlp", keras), "resnet": _resnet, "transformer": lambda: transformer(4)}
    if way != KERAS:
        os.environ["TFSCALE_TRACE"] = way
        dp = tfscale.DataParallel(per_replica_batch=PER_REPLICA_BATCH, batch_norm="local", seed=0)
        with dp.scope():
            model = dp.prepare(build[model_name]())
            model.compile(make_optimizer(keras), make_loss(keras), metrics=["accuracy"])
        return model
    devices = [f"CPU:{number}" for number in range(num_replicas)]
    scope = tf.distribute.MirroredStrategy(devices).scope() if num_replicas > 1 else contextlib.nullcontext()
    with scope:
        model = build[model_name]()
        model.compile(make_optimizer(keras), make_loss(keras), metrics=["accuracy"])
    return model


def _resnet() -> keras.Model:
    """He et al. 2015 (arXiv:1512.03385), section 4.2, n = 3, with convolutions as shortcuts where shapes change."""
    layers = keras.layers
    image = keras.Input(_IMAGE)
    x = layers.ReLU()(convolution(image, 16))
    for filters, strides in [(16, 1)] * 3 + [(32, 2), (32, 1), (32, 1)] + [(64, 2), (64, 1), (64, 1)]:
        y = layers.ReLU()(convolution(x, filters, strides))
        y = convolution(y, filters)
        shortcut = x if strides == 1 else layers.Conv2D(filters, 1, strides, use_bias=False)(x)
        x = layers.ReLU()(layers.Add()([shortcut, y]))
    return keras.Model(image, layers.Dense(models.NUM_CLASSES)(layers.GlobalAveragePooling2D()(x)))


def _rows(model_name: str, rows: int) -> tuple[Any, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, models.NUM_CLASSES, rows)
    if model_name == "transformer":
        return tokens(rows), labels
    shape = _IMAGE if model_name == "resnet" else models.IMAGE_SHAPE
    return generator.standard_normal((rows, *shape), dtype=np.float32), labels


def _cpu_s(call: Callable[[], Any]) -> float:
    start_s = time.process_time()
    call()
    return time.process_time() - start_s


def _num_nodes() -> int:
    """Operations of the largest graph that is there, and of the functions that come with it."""
    definitions = [each.as_graph_def() for each in gc.get_objects() if isinstance(each, tf.Graph)]
    return max(
        len(each.node) + sum(len(function.node_def) for function in each.library.function) for each in definitions
    )
