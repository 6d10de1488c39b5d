"""Have all workers the same data in a loop of the user's own?

No call of a loop is certain to be made by all workers, so nothing is compared in a reduction: each notes on the way to
the step what it reads, and tells of it with its heartbeats.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.cluster.passes import LabelsSeen, PassesRead
from tfscale.data.labels import SumsOfExamples, after, labels_of, readable_parts
from tfscale.data.labels_read import is_noted, noting_labels
from tfscale.data.pass_ends import PassEnds
from tfscale.framework.datasets import draws_values
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.peers import find_watch, passes_read

# Of batches that a script hands over itself, outside of any graph.
_BY_HAND = Fact["_LabelsTold"](ReplicaGroup, "labels of batches by hand")
# That are read at the same time.
_KEPT_PASSES = 16


def noting_for_loop(dataset: tf.data.Dataset, passes: PassesRead) -> tf.data.Dataset:
    """`dataset`, with the labels, the batches and the end of each pass noted.

    Args:
        dataset: Of global batches, the same on every worker.
        passes: Of this worker.
    """
    ends = PassEnds(passes, may_be_augmented=draws_values(dataset))
    return ends.noting(noting_labels(dataset, _LabelsTold(passes, ends.data).note))


def noting_batch(strategy: tf.distribute.Strategy, batch: Any) -> Any:
    """A global batch that a script hands over itself, with its labels noted before anything is computed of it.

    Args:
        strategy: Of a job of several workers.
        batch: Nested structure of tensors; on every worker the same.
    """
    labels, inputs = readable_parts(batch)
    if tf.executing_eagerly():
        told = _BY_HAND.of(strategy) or _BY_HAND.set(strategy, _of_batches(strategy, batch))
        told.note_next(len(labels), *labels, *inputs)
        return batch
    told = _of_batches(strategy, batch)
    noted = tf.numpy_function(told.note_next, [len(labels), *labels, *inputs], [])
    with tf.control_dependencies([noted] if isinstance(noted, tf.Operation) else noted):
        return tf.nest.map_structure(after, batch, expand_composites=True)


def _of_batches(strategy: tf.distribute.Strategy, batch: Any) -> _LabelsTold:
    passes = passes_read(strategy)
    # Without labels they may be noise, which every worker draws for itself.
    data = passes.add_data(may_be_augmented=labels_of(batch) is batch)
    strategy_ref = weakref.ref(strategy)

    def compare() -> None:
        watch = find_watch(strategy_ref())
        if watch is not None:
            watch.compare_first_labels()

    return _LabelsTold(passes, data, compare)


class _LabelsTold:
    """The labels of one data set, as others are told of them."""

    def __init__(self, passes: PassesRead, data: int, compare_first: Callable[[], None] = lambda: None):
        self._passes, self._data = passes, data
        self._compare_first = compare_first
        self._num_batches = 0
        self._lock = threading.Lock()
        self._num_passes = 0
        self._sums: dict[int, SumsOfExamples] = {}

    def note(self, number: np.int64, index: np.int64, num_labels: int, *leaves: Any) -> np.int64:
        """As `noting_labels` wants it."""
        with self._lock:
            if number < 0:
                number = np.int64(self._num_passes)
                self._sums[int(number)] = SumsOfExamples()
                self._sums.pop(self._num_passes - _KEPT_PASSES, None)
                self._num_passes += 1
            sums = self._sums.get(int(number))
            if sums is not None:
                sums.add(leaves[:num_labels], leaves[num_labels:])
                numbers = tuple((sums.of_labels + sums.of_inputs).tolist())
                seen = LabelsSeen(self._data, int(number) + 1, int(index) + 1, numbers)
                # Noise, which each may draw for itself.
                self._passes.note_labels(seen, may_be_augmented=sums.are_of_inputs)
        return number

    def note_next(self, num_labels: int, *leaves: Any) -> None:
        """Notes a batch of one pass without end."""
        index, self._num_batches = self._num_batches, self._num_batches + 1
        if is_noted(index):
            self.note(np.int64(0 if index else -1), np.int64(index), num_labels, *leaves)
        if index == 0:
            self._compare_first()
