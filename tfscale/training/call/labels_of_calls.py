"""Have all workers been given the same batches by a loop that calls `train_on_batch`?

Each worker takes its rows of every batch. Where a loop draws by what is not the same everywhere, each has other
batches: examples are repeated and lost. Their labels tell, which augmentation leaves alone.
"""

from __future__ import annotations

import contextlib
import zlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.errors import DataError
from tfscale.replicas.agreement import gather_from_workers
from tfscale.replicas.replica_batch import local_replicas

# Labels may have been computed, by predictions of a model, in another order of a sum on another worker.
_TOLERANCE = 1e-3
# A sum of labels alone would not tell another order of them.
_WEIGHTS = 8191
# Of an array: a step must not wait for the sum of a batch of pictures.
_MOST_NUMBERS = 2**16


class LabelsOfCalls:
    """Compares the labels of all calls so far after the first call, the second, the fourth, and so on.

    Args:
        strategy: Of the model.
        name: Of the method.
    """

    def __init__(self, strategy: tf.distribute.Strategy, name: str):
        self._strategy, self._name = strategy, name
        replicas = local_replicas(strategy)
        self._are_several = replicas.here < replicas.total
        self._calls = 0
        # Of all calls, and of what it is made.
        self._sum, self._size = 0.0, 0.0

    def compare(self, labels: Any) -> None:
        """To be called by every worker, before it trains on a batch.

        Args:
            labels: Of the batch; None for none.

        Raises:
            DataError: On every worker, when one has had others.
        """
        if not self._are_several or labels is None:
            return
        self._calls += 1
        # What cannot be read here is refused where Keras reads it.
        with contextlib.suppress(Exception):
            total, size = sum_of_labels(labels)
            self._sum, self._size = self._sum + self._calls * total, self._size + self._calls * size
        if self._calls & (self._calls - 1):
            return
        everyone = gather_from_workers(self._strategy, tf.constant([self._sum, self._size], tf.float64))
        chief, *others = ((float(total), float(size)) for total, size in everyone)
        for rank, found in enumerate(others, 1):
            if max(abs(a - b) for a, b in zip(chief, found, strict=True)) > _TOLERANCE * max(chief[1], found[1]):
                raise DataError(
                    f"All workers must give `{self._name}` the same batches: each takes its own rows of every batch.\n"
                    f"Received: other labels on worker {rank} than on worker 0 in the first {self._calls} call(s). "
                    "Seed what the loop draws by, alike on all workers (`np.random.default_rng(3)`; "
                    "`DataParallel(seed=)` seeds Python's and NumPy's own generators)."
                )


def sum_of_labels(labels: Any) -> tuple[float, float]:
    """A sum of labels, each with a weight by its place, and the same of their absolute values.

    Of an array of more than 65,536 it takes about as many, evenly spread.

    Args:
        labels: A structure of arrays or tensors, of numbers or strings.

    Example:
        >>> import numpy as np
        >>> sum_of_labels(np.array([1.0, -3.0]))
        (-5.0, 7.0)
    """
    total = size = 0.0
    for leaf in keras.tree.flatten(labels):
        array = np.asarray(leaf).ravel()
        array = array[:: max(len(array) // _MOST_NUMBERS, 1)]
        if array.dtype.kind in "OSU":
            array = np.array([zlib.crc32(repr(each).encode()) for each in array.tolist()])
        numbers = np.nan_to_num(array.astype(np.float64))
        weights = np.arange(len(numbers)) % _WEIGHTS + 1.0
        total += float(numbers @ weights)
        size += float(np.abs(numbers) @ weights)
    return total, size
