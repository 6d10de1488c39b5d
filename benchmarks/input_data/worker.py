"""One worker of a job reads its share of a few epochs, and says what that took.

python -m benchmarks.input_data.worker EPOCHS, with TF_CONFIG for several workers.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

import tfscale
from benchmarks.input_data import pictures


def main(num_epochs: int) -> None:
    """Prints one JSON object."""
    dp = tfscale.DataParallel(global_batch=pictures.BATCH, seed=1)
    files, labels = pictures.encode()
    calls = [0]

    def count(label: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return label

    def counted(example: Any, seed: tf.Tensor) -> Any:
        picture, label = pictures.decode(example, seed)
        return picture, tf.numpy_function(count, [label], tf.int64)

    data = dp.dataset((files, labels), map_fn=counted, shuffle=True)
    distributed = dp.strategy.experimental_distribute_dataset(data)
    for _ in distributed:
        pass
    calls[0], start_s = 0, time.process_time()
    for _ in range(num_epochs):
        for _ in distributed:
            pass
    cpu_s = time.process_time() - start_s
    print(json.dumps({"rank": dp.rank, "calls": calls[0], "cpu_s": cpu_s}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
