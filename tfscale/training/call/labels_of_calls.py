"""Have all workers been given the same batches by a loop that calls `train_on_batch`?

Each worker takes its rows of every batch. Where a loop draws by what is not the same everywhere, each has other
batches: examples are repeated and lost. Their labels tell, which augmentation leaves alone.
"""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

from tfscale.cluster.passes import seed_alike
from tfscale.data.labels import SumsOfLabels, worker_with_other_labels
from tfscale.errors import DataError
from tfscale.replicas.replica_batch import local_replicas


class LabelsOfCalls:
    """Compares the labels of all calls so far after the first call, the second, the fourth, and so on.

    Args:
        strategy: Of the model.
        name: Of the method.
    """

    def __init__(self, strategy: tf.distribute.Strategy, name: str):
        self._strategy, self._name = strategy, name
        self._are_several = local_replicas(strategy).on_several_workers
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
        other = worker_with_other_labels(self._strategy, self._sums.numbers)
        if other is not None:
            raise DataError(
                f"All workers must give `{self._name}` the same batches: each takes its own rows of every batch.\n"
                f"Received: other labels on worker {other} than on worker 0 in the first {self._calls} call(s). "
                f"{seed_alike('the loop')}."
            )
