"""One worker of a job reads its share of a few epochs, and says what one took, at least.

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
from tfscale.training.agreement import least_of_workers

# A batch costs each worker 0.4 ms whatever its share; in one of 32, the 11 rows of a third worker take not much more.
BATCH = 96


def main(num_epochs: int) -> None:
    """Prints one JSON object."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[tfscale.resolve_cluster().rank % len(cores)]})
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    # To begin an epoch takes 0.07 s of CPU on any number of workers, in which TensorFlow optimises the pipeline: as
    # much as 300 pictures take. An epoch has enough of them for that not to show.
    files, labels = pictures.encode(times=16)
    print(json.dumps({"calls": _count(dp, files, labels), "cpu_s": _time(dp, files, labels, num_epochs)}), flush=True)


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


def _time(dp: Any, files: np.ndarray, labels: np.ndarray, num_epochs: int) -> float:
    """Seconds of CPU of an epoch, without counting: threads that wait for Python's lock take CPU too."""
    distributed = dp.strategy.experimental_distribute_dataset(
        dp.dataset((files, labels), map_fn=pictures.decode, shuffle=True)
    )
    taken_s = [_epoch_s(distributed)]
    # The workers take turns: more of them than cores would take each other's cache.
    for rank in range(tfscale.resolve_cluster().num_workers):
        if rank == dp.rank:
            taken_s += [_epoch_s(distributed) for _ in range(num_epochs)]
        least_of_workers(dp.strategy, rank)
    # The first epoch makes the graph and lets the autotuner find its way. The least, because whatever else runs on the
    # machine takes cache and cores, and can only add.
    return min(taken_s[1:])


def _epoch_s(distributed: Any) -> float:
    start_s = time.process_time()
    for _ in distributed:
        pass
    return time.process_time() - start_s


if __name__ == "__main__":
    main(int(sys.argv[1]))
