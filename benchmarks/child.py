"""One process of one contender: builds once, then runs a block of steps whenever its parent asks.

It reads one JSON line per request from its standard input and answers with one on its standard
output. Between requests it is blocked in that read and uses no core. It ends when its input ends.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import resource
import sys
from typing import Any

from benchmarks.answering import answering
from benchmarks.contenders import Contender


def main() -> None:
    """Serves until the parent is gone."""
    answer = answering()
    request = json.loads(sys.stdin.readline())
    contender = Contender(**request["contender"])
    if contender.one_core_each:
        os.sched_setaffinity(0, {request["core"]})
    block = _build(contender, request["model"])
    for line in sys.stdin:
        request = json.loads(line)
        cpu_s = _cpu_s()
        seconds, loss = block(request["steps_per_epoch"], request["epochs"])
        answer(
            seconds=seconds,
            loss=loss,
            cpu_s=_cpu_s() - cpu_s,
            # Linux counts it in KiB.
            max_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            versions=_versions(),
        )


def _build(contender: Contender, model_name: str) -> Any:
    if contender.library == "torch":
        from benchmarks import torch_loop

        return torch_loop.make_block(contender, model_name)
    if contender.library == "jax":
        from benchmarks import fitting

        return fitting.make_block(contender, model_name)
    import tensorflow as tf

    if contender.one_core_each:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    if contender.num_replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration() for _ in range(contender.num_replicas)]
        tf.config.set_logical_device_configuration(cpu, logical)
    if contender.library.startswith("raw"):
        from benchmarks import raw_loop

        return raw_loop.make_block(contender, model_name)
    from benchmarks import fitting

    return fitting.make_block(contender, model_name)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _versions() -> dict[str, str]:
    versions = {}
    for name in ("tensorflow", "keras", "tf_keras", "jax", "torch", "numpy", "tfscale"):
        # A source tree that was never installed has no version.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if name in sys.modules:
                versions[name] = sys.modules[name].__version__
    return versions


if __name__ == "__main__":
    main()
