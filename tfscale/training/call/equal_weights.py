"""Do all workers hold the same weights when a call begins?

Of several workers each loads and assigns for itself: weights of a file that is another one on one of them would be
evaluated, each on its part of the rows, and trained on until an epoch has ended.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from tfscale.errors import DriftError
from tfscale.replicas.replica_batch import local_replicas
from tfscale.training.step.checksums import checksums_of_replicas
from tfscale.training.step.drift import find_drift, tolerance_of


def compare_weights(name: str, model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Compares one number of each replica, where there are several workers; to be called by every worker.

    Args:
        name: Of the call that begins.
        model: Prepared; not compared as long as it has no weights.
        strategy: Of the model.

    Raises:
        DriftError: On every worker, when weights differ by more than the tolerance of its `fit`.
    """
    if not local_replicas(strategy).on_several_workers or not model.built or not model.weights:
        return
    drift = find_drift(model, checksums_of_replicas(model, strategy))
    if drift is not None and drift.largest > tolerance_of(model):
        raise DriftError(
            "The weights of all replicas must be equal.\n"
            f"Received: as `{name}` begins, {drift.said}. Load the same file on all workers, and assign no weights by "
            "what is not the same on all: the clock, the rank, a draw without a seed."
        )


class WeightsOfCalls:
    """Compares the weights before the first call of a method, the second, the fourth, and so on.

    Args:
        name: Of the method.
        model: Prepared.
        strategy: Of the model.
    """

    def __init__(self, name: str, model: keras.Model, strategy: tf.distribute.Strategy):
        self._name, self._model, self._strategy = name, model, strategy
        self._calls = 0

    def compare(self) -> None:
        """To be called by every worker, before each call.

        Raises:
            DriftError: As `compare_weights`.
        """
        self._calls += 1
        if not self._calls & (self._calls - 1):
            compare_weights(self._name, self._model, self._strategy)
