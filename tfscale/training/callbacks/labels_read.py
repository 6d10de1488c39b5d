"""When are the batches compared that workers read in `fit`, `evaluate` and `predict`?

Before the first step, whenever an epoch has ended, and at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfscale.data.labels_read import READING
from tfscale.data.peeking import PeekedBatches
from tfscale.recovery.one_call import with_callback
from tfscale.training.step.call_arguments import CallArguments


def compare_labels(given: CallArguments, strategy: tf.distribute.Strategy) -> None:
    """Puts the comparison behind the callbacks of `fit`, where there are several workers.

    Args:
        given: Arguments of `fit`; its callbacks are replaced, if it takes any.
        strategy: Of the model.
    """
    if READING.of(strategy) is not None and given.can_take("callbacks"):
        given["callbacks"] = with_callback(given.get("callbacks"), LabelsOfEpochs(strategy), first=False)


def comparing_first(function: Callable[[Any], Any], strategy: tf.distribute.Strategy) -> Callable[[Any], Any]:
    """`function`, which runs steps, with the first batch of all data of a call compared before.

    Args:
        function: Takes an iterator, `PeekedBatches`, or batches that were read.
        strategy: Of the model.
    """

    @functools.wraps(function)
    def call(data: Any) -> Any:
        reading = READING.of(strategy)
        if reading is None or not reading.has_more:
            return function(data)
        if isinstance(data, tf.data.Iterator | tf.distribute.DistributedIterator):
            data = PeekedBatches(data)
        if isinstance(data, PeekedBatches):
            data.peek()
        reading.compare()
        return function(data)

    return call


class LabelsOfEpochs(keras.callbacks.Callback):
    """Ends `fit` on all workers when they have read other labels.

    Args:
        strategy: Of the model.

    Raises:
        DataError: In `fit`, on every worker.
    """

    several_steps_safe = True

    def __init__(self, strategy: tf.distribute.Strategy):
        super().__init__()
        self._strategy = strategy

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Compares all that every worker has read; not where this one stops, perhaps while the others go on."""
        del epoch, logs
        reading = READING.of(self._strategy)
        if reading is not None and not self.model.stop_training:
            reading.compare()
