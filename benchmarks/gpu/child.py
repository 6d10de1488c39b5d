"""One process of one contender: builds once, then runs a block of steps whenever its parent asks.

It reads one JSON line per request from its standard input, and answers with one on its standard output.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import tfscale
from benchmarks import fitting
from benchmarks.answering import answering
from benchmarks.gpu import models
from benchmarks.gpu.plan import CONTENDERS, GPTS, PER_REPLICA_BATCH


def main() -> None:
    """Serves until the parent is gone."""
    answer = answering()
    said, block = start(**json.loads(sys.stdin.readline()))
    answer(**said)
    for line in sys.stdin:
        request = json.loads(line)
        seconds, loss = block(request["steps_per_epoch"], request["epochs"])
        answer(seconds=seconds, loss=loss, peak_bytes=peak_bytes())


def start(contender: str, model: str, size: str, policy: str, num_cpus: int) -> tuple[dict[str, Any], fitting.Block]:
    """Makes the contender's first step.

    Args:
        contender: Which of `CONTENDERS`.
        model: Which model.
        size: `"full"` or `"tiny"`.
        policy: Of Keras's mixed precision.
        num_cpus: Logical CPUs to run on; 0 for every GPU.

    Returns:
        What is known then, and a block: (steps per epoch, epochs) -> seconds, last loss.
    """
    if num_cpus:
        tfscale.simulate_replicas(num_cpus)
    keras.mixed_precision.set_dtype_policy(policy)
    keras.utils.set_random_seed(0)
    devices = len(tf.config.list_logical_devices("CPU" if num_cpus else "GPU"))
    num_replicas = 1 if contender == CONTENDERS[1] else devices
    batch = PER_REPLICA_BATCH[model, size] * num_replicas
    scope, prepare = _ways(contender, batch)
    with scope():
        built = prepare(models.build(model, size))
        began_s = time.perf_counter()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        built.compile(optimizer=keras.optimizers.SGD(1e-3, momentum=0.9), loss=loss)
    dataset = models.data(model, size, batch)
    built.fit(dataset, steps_per_epoch=1, verbose=0)
    first_step_s = time.perf_counter() - began_s
    is_gpt = model == "gpt"
    said = {
        "num_replicas": num_replicas,
        "items_per_step": batch * (GPTS[size].length if is_gpt else 1),
        "flops_per_item": GPTS[size].flops_per_token if is_gpt else models.image_flops(built),
        "first_step_s": first_step_s,
        "versions": {"tensorflow": tf.__version__, "keras": keras.__version__, "tfscale": tfscale.__version__},
    }
    return said, fitting.fit_block(keras, built, dataset)


def _ways(contender: str, batch: int) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The scope to build in, and what is done to a model."""
    if contender == CONTENDERS[0]:
        dp = tfscale.DataParallel(global_batch=batch)
        return dp.scope, dp.prepare
    if contender == CONTENDERS[1]:
        return contextlib.nullcontext, lambda model: model
    return tf.distribute.MirroredStrategy().scope, lambda model: model


def peak_bytes() -> int | None:
    """Memory in use at most since the start, on the GPU that used most; None on CPUs, which do not count it."""
    used = [tf.config.experimental.get_memory_info(gpu.name.removeprefix("/device:"))["peak"] for gpu in _gpus()]
    return max(used, default=None)


def _gpus() -> list[Any]:
    return tf.config.list_logical_devices("GPU")


if __name__ == "__main__":
    main()
