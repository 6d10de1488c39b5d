"""One worker of a job reads its share of a few epochs, and all rows of as many, and says what each epoch took.

python -m benchmarks.input_data.worker EPOCHS, with TF_CONFIG for several workers. Every worker has one core, as on
machines of their own: threads that move between two cores take more time there, the more of them there are.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

import tfscale
from benchmarks.input_data import pictures
from tfscale.replicas.agreement import least_of_workers

# A batch costs each worker 0.25 ms whatever its share, as much as two pictures take.
BATCH = 256


def main(num_epochs: int) -> None:
    """Prints one JSON object."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[tfscale.resolve_cluster().rank % len(cores)]})
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    # To begin an epoch takes 0.08 s of CPU on any number of workers, in which TensorFlow optimises the pipeline: as
    # much as 500 pictures take. An epoch has enough of them for that not to show.
    files, labels = pictures.encode(times=32)
    num_calls, cpu_s = _count(dp, files, labels), _time(dp, files, labels, num_epochs)
    print(json.dumps({"calls": num_calls / len(labels), "cpu_s": cpu_s}), flush=True)


def _count(dp: Any, files: np.ndarray, labels: np.ndarray) -> int:
    """Calls of `map_fn` in an epoch."""
    calls = [0]

    def count(label: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return label

    def counted(example: Any) -> tf.Tensor:
        return tf.numpy_function(count, [example[1]], tf.int64)

    for _ in dp.strategy.experimental_distribute_dataset(dp.dataset((files, labels), map_fn=counted)):
        pass
    return calls[0]


def _time(dp: Any, files: np.ndarray, labels: np.ndarray, num_epochs: int) -> dict[str, list[float]]:
    """Seconds of CPU of epochs of all rows, and of the own ones. Nothing is counted: to wait for Python takes CPU."""
    dataset = dp.dataset((files, labels), map_fn=pictures.decode, shuffle=True)
    read = {"whole": dataset, "own": dp.strategy.experimental_distribute_dataset(dataset)}
    # The first epoch makes the graph and lets the autotuner find its way.
    for each in read.values():
        _epoch_s(each)
    taken_s: dict[str, list[float]] = {name: [] for name in read}
    # The workers take turns: more of them than cores would take each other's cache.
    for rank in range(tfscale.resolve_cluster().num_workers):
        for _ in range(num_epochs if rank == dp.rank else 0):
            # In turn: a machine that others use too is not equally fast from one minute to the next.
            for name, each in read.items():
                taken_s[name].append(_epoch_s(each))
        least_of_workers(dp.strategy, rank)
    return taken_s


def _epoch_s(distributed: Any) -> float:
    start_s = time.process_time()
    for _ in distributed:
        pass
    return time.process_time() - start_s


if __name__ == "__main__":
    main(int(sys.argv[1]))
