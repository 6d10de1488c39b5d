"""Have all workers read the same batches in a call of `fit`, `evaluate` or `predict`, whatever makes them?

Each worker reads all of the data, and takes its rows of every batch. Where one reads others (its own share of them, an
order by the clock, a generator without a seed), examples are repeated and lost. The labels tell, which augmentation of
inputs leaves alone: each worker notes sums of its own on the way to the step, and all compare them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfscale.cluster.passes import READ_ALIKE, PassesRead
from tfscale.data.labels import SumsOfExamples, SumsOfLabels, after, first_with_other_labels, readable_parts
from tfscale.data.pass_ends import PassEnds
from tfscale.errors import DataError
from tfscale.framework.datasets import draws_values
from tfscale.replicas.agreement import gather_from_workers, gather_number
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_batch import local_replicas

_log = logging.getLogger(__name__)

# Passes that are begun ahead on one worker, while another has not ended the one before.
_KEPT_PASSES = 4
_READ_ON = (
    " A Python generator as `validation_data` is read on from where each worker has read ahead the last time: give a "
    "`tf.data.Dataset`, a `PyDataset` or arrays."
)
# Of later batches one in so many is noted, so that a step rarely waits for Python.
_EVERY = 16


class _Noted(NamedTuple):
    """Until some batch of a pass."""

    batches: int
    """That were read."""
    sums: np.ndarray
    """Of those that were noted."""
    inputs: np.ndarray
    """Sums of their inputs, as long as labels tell no example from another; else zeros."""


class _Pass:
    def __init__(self) -> None:
        self._sums = SumsOfExamples()
        self.count = 0
        self._noted: dict[int, _Noted] = {}

    def note(self, index: int, labels: Any, inputs: Any) -> None:
        self._sums.add(labels, inputs)
        self.count += 1
        self._noted[self.count] = _Noted(index + 1, self._sums.of_labels, self._sums.of_inputs)

    def until(self, count: int) -> _Noted:
        """What was noted of so many; all before are not asked for any more."""
        found = self._noted[count]
        self._noted = {place: each for place, each in self._noted.items() if place >= count}
        return found


def is_noted(index: Any) -> Any:
    """Whether the labels of a batch are noted: of the first ones, those at powers of two, and every sixteenth.

    Args:
        index: Of the batch, from 0; a Python integer or an int64 tensor.
    """
    return (index & (index - 1) == 0) | (index % _EVERY == 0)


def noting_labels(dataset: tf.data.Dataset, note: Callable[..., np.int64]) -> tf.data.Dataset:
    """`dataset`, which calls `note` with the labels of the batches of which `is_noted` says so.

    Args:
        dataset: Of global batches.
        note: Takes the number of the pass, -1 in its first call; the index of the batch, from 0; how many of the arrays
            that follow are labels and weights; these, and those of inputs. Returns the number of the pass, from 0. A
            thread of TensorFlow's calls it.
    """

    @tf.autograph.experimental.do_not_convert
    def step(state: tuple[tf.Tensor, tf.Tensor], batch: Any) -> Any:
        number, index = state
        labels, inputs = readable_parts(batch)

        def noted() -> tf.Tensor:
            given = tf.numpy_function(note, [number, index, len(labels), *labels, *inputs], tf.int64)
            return tf.ensure_shape(given, ())

        number = tf.cond(is_noted(index), noted, lambda: number)
        with tf.control_dependencies([number]):
            return (number, index + 1), tf.nest.map_structure(after, batch, expand_composites=True)

    return dataset.scan((tf.constant(-1, tf.int64), tf.constant(0, tf.int64)), step)


class LabelsRead:
    """The labels that passes over one data set have had in this process.

    Args:
        dataset: Of global batches, as every worker reads all of them.
    """

    def __init__(self, dataset: tf.data.Dataset):
        self._dataset = dataset
        # A thread of TensorFlow's notes.
        self._lock = threading.Lock()
        self._passes: list[_Pass | None] = []

    @property
    def may_be_augmented(self) -> bool:
        """Whether other labels may be of the same examples. It is asked where labels differ: all functions are read."""
        return draws_values(self._dataset)

    def noting(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """`dataset`, whose passes are noted, as `noting_labels` has it."""
        return noting_labels(dataset, self._note)

    def _note(self, number: np.int64, index: np.int64, num_labels: int, *leaves: Any) -> np.int64:
        with self._lock:
            if number < 0:
                number = np.int64(len(self._passes))
                self._passes.append(_Pass())
                self._passes[:-_KEPT_PASSES] = [None] * max(len(self._passes) - _KEPT_PASSES, 0)
            read = self._passes[number]
            if read is not None:
                read.note(int(index), leaves[:num_labels], leaves[num_labels:])
        return number

    @property
    def position(self) -> tuple[int, int]:
        """How many passes have begun, and how many batches of the last one were noted."""
        with self._lock:
            newest = self._passes[-1] if self._passes else None
            return len(self._passes), 0 if newest is None else newest.count

    def until(self, position: tuple[int, int]) -> _Noted | None:
        """What was noted until then; None where that is no longer known."""
        num_passes, count = position
        with self._lock:
            read = self._passes[num_passes - 1] if num_passes else None
            return None if read is None else read.until(count)


class Reading:
    """The data that one call reads, as far as it reads whole batches; all workers make the same calls of it.

    Args:
        strategy: Of the job.
        name: Of the call.
        data: As they were given to it; None where it finds its own.
    """

    def __init__(self, strategy: tf.distribute.Strategy, name: str, data: Any):
        self._strategy, self._name = strategy, name
        self._what = "" if data is None else f" ({type(data).__name__.strip('_')})"
        self._read: list[LabelsRead] = []
        self._ends: list[PassEnds] = []
        self._num_rows = -1
        self._num_compared = 0
        self._has_warned = self._reads_on = False

    def add(self, dataset: tf.data.Dataset, passes: PassesRead) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
        """Has another data set compared; every worker calls it.

        Args:
            dataset: Of global batches.
            passes: Of this worker.

        Returns:
            What has its passes noted: it takes the data set, and returns what is to be read.

        Raises:
            DataError: On every worker, when one has another number of batches. The steps would not fit together.
        """
        size = int(dataset.cardinality())
        self.compare_sizes(size, "batch(es)")
        read = LabelsRead(dataset)
        self._read.append(read)
        # Keras's own data sets of arrays do not know their length; of as many rows they make as many batches.
        if size != tf.data.UNKNOWN_CARDINALITY or self._num_rows >= 0:
            return read.noting
        ends = PassEnds(passes)
        self._ends.append(ends)
        return lambda given: ends.noting(read.noting(given))

    @contextlib.contextmanager
    def of_data(self, data: Any, *, goes_on: bool = False) -> Iterator[None]:
        """Compares how many rows all workers give to a call, which makes data sets of them in the meantime.

        Args:
            data: As they were given to it; None where it finds its own.
            goes_on: Whether it is a validation within the call, which reads them again.

        Raises:
            DataError: As `compare_sizes`.
        """
        self._reads_on = self._reads_on or (goes_on and isinstance(data, Iterator))
        before, self._num_rows = self._num_rows, _num_rows(data)
        try:
            self.compare_sizes(self._num_rows, "example(s)")
            yield
        finally:
            self._num_rows = before

    def compare_sizes(self, size: int, unit: str) -> None:
        """Compares how much all workers are to read; every worker calls it.

        Args:
            size: Of this worker's data; negative where it is not known.
            unit: Of the size, in words.

        Raises:
            DataError: On every worker, when one has more or less: the steps would not fit together.
        """
        sizes = [
            f"{each} {unit}" if each >= 0 else f"no known number of {unit}"
            for each in gather_number(self._strategy, size)
        ]
        other = next((rank for rank, each in enumerate(sizes) if each != sizes[0]), None)
        if other is not None:
            raise DataError(self._said(f"{sizes[other]} on worker {other}, {sizes[0]} on worker 0,"))

    @property
    def has_more(self) -> bool:
        """Whether data were distributed since it was last compared."""
        return len(self._read) > self._num_compared

    def compare(self) -> None:
        """Compares what all workers have read by now.

        Raises:
            DataError: On every worker, when one has read others. Of other labels only a warning where functions of the
                data draw, which may have made them of the same examples, and of `predict`, which may be given noise. So
                of other inputs of labels that are all one number.
        """
        self._num_compared = len(self._read)
        for ends in self._ends:
            ended = min(gather_number(self._strategy, ends.num_ended))
            if ended:
                self.compare_sizes(ends.batches_of(ended), "batch(es)")
        for read in self._read:
            found = self._difference(read)
            if found is None:
                continue
            what, where = found
            if what == "labels" and not read.may_be_augmented and self._name != "predict":
                raise DataError(self._said(where))
            if not self._has_warned and not (what == "inputs" and read.may_be_augmented):
                self._has_warned = True
                _log.warning("%s Nothing is wrong if only augmentation or noise differs.", self._said(where))

    def _difference(self, read: LabelsRead) -> tuple[str, str] | None:
        """What differs, and where, in words."""
        # Some have read further ahead.
        everyone = gather_from_workers(self._strategy, tf.constant(read.position, tf.int64))
        least = min((int(num_passes), int(count)) for num_passes, count in everyone)
        noted = read.until(least)
        unknown = np.full_like(SumsOfLabels().numbers, np.nan)
        own = [unknown, unknown] if noted is None else [noted.sums, noted.inputs]
        labels, inputs = zip(*gather_from_workers(self._strategy, tf.constant(np.stack(own))), strict=True)
        batches = "" if noted is None else f" in the first {noted.batches} batch(es)"
        if (other := first_with_other_labels(labels)) is not None:
            return "labels", f"other labels on worker {other} than on worker 0{batches}"
        if (other := first_with_other_labels(inputs)) is not None:
            what = "other inputs, of labels that are all one number,"
            return "inputs", f"{what} on worker {other} than on worker 0{batches}"
        return None

    def _said(self, found: str) -> str:
        way_out = READ_ALIKE + (_READ_ON if self._reads_on else "")
        return (
            "All workers must read the same data: each takes its own rows of every batch.\n"
            f"Received: {found} of what `{self._name}` reads{self._what}. {way_out}"
        )


READING = Fact[Reading](ReplicaGroup, "reading", lambda _: "a call reads data")


@contextlib.contextmanager
def reading_alike(strategy: tf.distribute.Strategy, name: str, data: Any, *, goes_on: bool) -> Iterator[None]:
    """Has the data compared that a call distributes, where there are several workers.

    Args:
        strategy: Of the job.
        name: Of the call.
        data: As they were given to it; None where it finds its own.
        goes_on: Whether it is part of the call around it, if there is one, and keeps its data for the next such call.

    Raises:
        DataError: As `Reading.compare`.
    """
    replicas, around = local_replicas(strategy), READING.of(strategy)
    if not replicas.on_several_workers:
        yield
        return
    reading = around if goes_on and around is not None else Reading(strategy, name, data)
    READING.set(strategy, reading)
    try:
        with reading.of_data(data, goes_on=reading is around):
            yield
        if name != "fit" and reading is not around:
            reading.compare()
    finally:
        if around is None:
            READING.forget(strategy)
        else:
            READING.set(strategy, around)


def _num_rows(data: Any) -> int:
    """Of arrays, of which Keras makes a data set that does not know how many it has; -1 of anything else."""
    first = next(iter(keras.tree.flatten(data)), None)
    shape: Any = getattr(first, "shape", ())
    return int(shape[0]) if len(shape) else -1
