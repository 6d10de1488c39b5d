"""Where does each pass end over data that do not know how many batches they have?

A worker whose data end earlier would leave the others waiting in a step. Nothing of a step tells of it, so it is noted
where the data are read: each batch, and that there are no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.cluster.passes import PassesRead


class PassEnds:
    """The passes over one data set.

    Args:
        passes: Of this worker.
        may_be_augmented: Whether other labels may be of the same examples.
    """

    def __init__(self, passes: PassesRead, *, may_be_augmented: bool = False):
        self._passes = passes
        self.data = passes.add_data(may_be_augmented=may_be_augmented)
        """Which data set of the job it is, from 1."""

    @property
    def num_ended(self) -> int:
        """The number of the last pass that has ended; 0 where none has."""
        return self._passes.last_ended_of(self.data).number

    def batches_of(self, number: int) -> int:
        """How many batches a pass had; -1 where it has not ended, or too many have since."""
        ended = self._passes.find_ended(self.data, number)
        return -1 if ended is None else ended.batches

    def noting(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """`dataset`, with the batches and the end of each pass noted."""

        @tf.autograph.experimental.do_not_convert
        def note(number: tf.Tensor, batch: tf.experimental.Optional) -> tuple[tf.Tensor, tf.experimental.Optional]:
            number = tf.ensure_shape(tf.numpy_function(self._note, [number, batch.has_value()], tf.int64), ())
            with tf.control_dependencies([number]):
                return number, tf.nest.map_structure(tf.identity, batch, expand_composites=True)

        end = tf.data.Dataset.from_tensors(tf.experimental.Optional.empty(dataset.element_spec))
        batches = _one_by_one(dataset, tf.experimental.Optional.from_value).concatenate(end)
        noted = batches.scan(tf.constant(0, tf.int64), note).filter(_has_value)
        return _one_by_one(noted, lambda batch: batch.get_value())

    def _note(self, number: np.int64, has_more: np.bool_) -> np.int64:
        number = number or np.int64(self._passes.begin(self.data))
        (self._passes.note if has_more else self._passes.end)(self.data, int(number))
        return number


def _one_by_one(dataset: tf.data.Dataset, function: Callable[[Any], Any]) -> tf.data.Dataset:
    """A `map` that reads nothing ahead: `tf.data` makes any other one parallel, and a generator is read further."""

    @tf.autograph.experimental.do_not_convert
    def step(state: tf.Tensor, batch: Any) -> tuple[tf.Tensor, Any]:
        return state, function(batch)

    return dataset.scan(tf.constant(0), step)


@tf.autograph.experimental.do_not_convert
def _has_value(batch: tf.experimental.Optional) -> tf.Tensor:
    return batch.has_value()
