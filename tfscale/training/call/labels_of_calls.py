"""Have all workers been given the same batches by a loop that calls `train_on_batch`?

Each worker takes its rows of every batch. Where a loop draws by what is not the same everywhere, each has other
batches: examples are repeated and lost. Their labels tell, which augmentation leaves alone.
"""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

from tfscale.data.labels import SumsOfLabels, are_same_labels, seed_alike
from tfscale.errors import DataError
from tfscale.replicas.agreement import gather_from_workers
from tfscale.replicas.replica_batch import local_replicas


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
        self._sums = SumsOfLabels()

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
            self._sums.add(labels)
        if self._calls & (self._calls - 1):
            return
        chief, *others = gather_from_workers(self._strategy, tf.constant(self._sums.numbers))
        for rank, found in enumerate(others, 1):
            if not are_same_labels(chief, found):
                raise DataError(
                    f"All workers must give `{self._name}` the same batches: each takes its own rows of every batch.\n"
                    f"Received: other labels on worker {rank} than on worker 0 in the first {self._calls} call(s). "
                    f"{seed_alike('the loop')}."
                )
