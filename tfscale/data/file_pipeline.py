"""How do the files that each worker reads become global batches?

After t rows of an epoch of n examples, workers 0 to w have given floor(N_w t / n), where their files hold N_w examples
together. So every step has a full batch, all files end at the last step, and a worker's rows of a step are within two
of its share. Which examples meet in a batch depends on the workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.data.files import RecordFiles
from tfscale.data.mapping import (
    ExampleMap,
    as_seed,
    as_written,
    batch_in_parallel,
    check_one_for_one,
    fold,
    map_in_parallel,
)
from tfscale.data.pipeline import passes
from tfscale.data.rows import EpochRows
from tfscale.errors import BatchError, DataError
from tfscale.replicas.replica_batch import LocalReplicas, ReplicaBatch, take_rows, with_stand_in

# Files that are read in turn where the order is mixed anyway.
_NUM_AT_ONCE = 16
# The product of two numbers of examples must fit into 63 bits.
_MOST_EXAMPLES = 3 * 10**9


@dataclass(frozen=True)
class FilePipeline:
    """What is done with the examples of files.

    Args:
        source: The files.
        rows: How the examples become steps.
        owned: Per worker the places of its files.
        example_map: What becomes of an example.
        buffer: Examples among which a worker's are mixed; 0 for no shuffling at all.
        cache: Whether to keep the examples in memory once they were read.
        begin: Epoch, first step and seed of the pass that begins, int64 `[3]`; called once per pass.

    Raises:
        BatchError: When the share of a worker is less than two rows.
        DataError: For more than three thousand million examples.
    """

    source: RecordFiles
    rows: EpochRows
    owned: tuple[tuple[int, ...], ...]
    example_map: ExampleMap
    buffer: int
    cache: bool
    begin: Callable[[], np.ndarray]
    _read: dict[int, tf.data.Dataset] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rows.num_examples > _MOST_EXAMPLES:
            raise DataError(
                f'`sharding="files"` takes up to {_MOST_EXAMPLES} examples.\nReceived: {self.rows.num_examples}.'
            )
        counts = [self._given(worker, self.rows.num_examples) for worker in range(len(self.owned))]
        if len(counts) > 1 and min(counts) * self.rows.global_batch < 2 * self.rows.num_examples:
            raise BatchError(
                "Every worker must have two rows of a full batch.\n"
                f"Received: a global batch of {self.rows.global_batch}, and files of {counts} examples per worker. "
                'Use a larger batch, files that divide more evenly, or sharding="exact".'
            )
        if self.cache:
            for worker, files in enumerate(self.owned):
                self._read[worker] = self.source.examples(tf.constant(files, tf.int64)).cache()

    def whole(self) -> tf.data.Dataset:
        """All rows of every step: those of worker 0 first."""
        workers = [self.rows_of(worker) for worker in range(len(self.owned))]
        # One pass is asked for once, whoever's rows are read.
        return map_in_parallel(_side_by_side(self.begin, workers), as_written(self._join))

    def of_replicas(self, replicas: LocalReplicas) -> tf.data.Dataset:
        """Per step a tuple of one `ReplicaBatch` for each replica of a worker."""
        worker = replicas.first // replicas.here
        return map_in_parallel(
            passes(self.begin).flat_map(self.rows_of(worker)),
            as_written(lambda step, data: self._split(step, data, replicas)),
        )

    def rows_of(self, worker: int) -> Callable[..., tf.data.Dataset]:
        """From epoch, first step and seed of a pass to `(step, data)` per step: a worker's rows, at least one."""

        def one_pass(epoch: tf.Tensor, first: tf.Tensor, seed: tf.Tensor) -> tf.data.Dataset:
            num_steps = self.rows.num_steps
            steps = tf.range(first, num_steps)
            given = self._rows_before(worker, tf.range(first, num_steps + 1))
            examples = self._examples(worker, epoch, seed)
            last = self._given(worker, self._used(num_steps)) - self._given(worker, self._used(num_steps - 1))
            if not last:
                examples = examples.concatenate(examples.take(1))
            # A remainder is read too: what is not read to its end is not kept by `cache`.
            end = self._given(worker, self._used(num_steps)) + (not last)
            own = examples.enumerate().skip(given[0]).filter(lambda place, _: place < end)
            mapped = map_in_parallel(own, lambda _, indexed: self.example_map(indexed[0], epoch, seed, indexed[1]))
            check_one_for_one(mapped.element_spec)
            share = self._given(worker, self.rows.num_examples) * self.rows.global_batch / self.rows.num_examples
            counts = tf.maximum(given[1:] - given[:-1], 1)
            batches = batch_in_parallel(mapped, max(1, round(share))).rebatch(counts)
            return tf.data.Dataset.zip(tf.data.Dataset.from_tensor_slices(steps), batches)

        return one_pass

    def _examples(self, worker: int, epoch: tf.Tensor, seed: tf.Tensor) -> tf.data.Dataset:
        """`(index, example)` of a worker's files, in the order of an epoch."""
        files = tf.constant(self.owned[worker], tf.int64)
        if not self.buffer:
            return self._read.get(worker) or self.source.examples(files)
        order = fold(fold(fold(as_seed(seed), epoch), tf.constant(worker)), seed)
        num_at_once = min(_NUM_AT_ONCE, len(self.owned[worker]))
        examples = self._read.get(worker) or self.source.examples(
            tf.random.experimental.stateless_shuffle(files, order), num_at_once=num_at_once
        )
        # Of this function's graph alone: else the order would depend on the global seed, which may differ by worker.
        tf.random.set_seed(1)
        return examples.shuffle(self.buffer, seed=tf.cast(order[0], tf.int64), reshuffle_each_iteration=False)

    def _used(self, step: Any) -> Any:
        """Rows before a step."""
        end = self.rows.num_steps * self.rows.global_batch if self.rows.drop_remainder else self.rows.num_examples
        if isinstance(step, int):
            return min(step * self.rows.global_batch, end)
        return tf.minimum(step * self.rows.global_batch, end)

    def _given(self, worker: int, used: Any) -> Any:
        """How many of the first `used` rows of an epoch are a worker's."""
        below, reached = (self._given_up_to(number, used) for number in (worker, worker + 1))
        return reached - below

    def _given_up_to(self, worker: int, used: Any) -> Any:
        """How many of the first `used` rows of an epoch come from the workers before this one."""
        files = itertools.chain.from_iterable(self.owned[:worker])
        lengths = self.source.lengths or ()
        return sum(lengths[file] for file in files) * used // self.rows.num_examples

    def _rows_before(self, worker: int, step: tf.Tensor) -> tf.Tensor:
        return self._given(worker, self._used(step))

    def _split(self, step: tf.Tensor, data: Any, replicas: LocalReplicas) -> tuple[ReplicaBatch, ...]:
        """What each replica of a worker takes of the worker's rows."""
        worker = replicas.first // replicas.here
        before, after = self._used(step), self._used(step + 1)
        count = self._given(worker, after) - self._given(worker, before)
        first_row = self._given_up_to(worker, after) - self._given_up_to(worker, before)
        parts = []
        for place in range(replicas.here):
            start, stop = count * place // replicas.here, count * (place + 1) // replicas.here
            bounds = with_stand_in(start, stop, tf.maximum(count, 1))
            part = data if replicas.here == 1 else take_rows(data, *bounds)
            parts.append(ReplicaBatch(part, stop - start, after - before, first_row + start))
        return tuple(parts)

    def _join(self, *workers: Any) -> Any:
        """The rows of a step, without those that stand in for none."""
        counted = []
        for worker, (step, data) in enumerate(workers):
            count = self._rows_before(worker, step + 1) - self._rows_before(worker, step)
            counted.append(take_rows(data, 0, count))
        return tf.nest.map_structure(_concatenate, *counted)


def _side_by_side(begin: Callable[[], np.ndarray], workers: list[Callable[..., tf.data.Dataset]]) -> tf.data.Dataset:
    return passes(begin).flat_map(lambda *begun: tf.data.Dataset.zip(tuple(rows(*begun) for rows in workers)))


def _concatenate(*leaves: Any) -> Any:
    if isinstance(leaves[0], tf.SparseTensor):
        return tf.sparse.concat(0, leaves)
    return tf.concat(leaves, axis=0)
