"""How do the examples of a source become the rows that some replicas take, epoch by epoch?

One pipeline serves all epochs: where a pass begins is asked when it begins, so that nothing is made or traced anew.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.data.mapping import (
    ExampleMap,
    as_seed,
    as_written,
    batch_in_parallel,
    check_one_for_one,
    fold,
    map_in_parallel,
)
from tfscale.data.rows import EpochRows
from tfscale.data.source import ArraySource, StreamSource
from tfscale.replicas.replica_batch import LocalReplicas, ReplicaBatch, take_rows, with_stand_in

Bounds = tuple[int, int]


@dataclass(frozen=True)
class Pipeline:
    """What is done with the examples of a source.

    Args:
        source: Where they are read.
        rows: How they become steps.
        example_map: What becomes of an example.
        buffer: Examples among which a stream is mixed; 0 for no shuffling at all.
        begin: Epoch, first step and seed of the pass that begins, int64 `[3]`; called once per pass.
    """

    source: ArraySource | StreamSource
    rows: EpochRows
    example_map: ExampleMap
    buffer: int
    begin: Callable[[], np.ndarray]

    def whole(self) -> tf.data.Dataset:
        """All rows of every step."""
        return map_in_parallel(self.rows_of(range(len(self.rows.loads))), as_written(lambda positions, data: data))

    def of_replicas(self, replicas: LocalReplicas) -> tf.data.Dataset:
        """Per step a tuple of one `ReplicaBatch` for each replica of a worker."""
        return map_in_parallel(
            self.rows_of(replicas.ids), as_written(lambda positions, data: self._split(positions, data, replicas))
        )

    def rows_of(self, replicas: range) -> tf.data.Dataset:
        """`(positions, data)` per step: the rows of replicas that follow each other, and their places in the epoch."""
        begun = passes(self.begin)
        full, last = (self.own_bounds(replicas, rows) for rows in (self.rows.global_batch, self.rows.last_batch))
        source = self.source
        if isinstance(source, ArraySource):
            steps = begun.flat_map(as_written(lambda *begun: self._steps(*begun, full=full, last=last)))
            if self.example_map.leaves_examples:
                return map_in_parallel(
                    steps, as_written(lambda positions, indices, *_: (positions, source.read(indices)))
                )
            examples = map_in_parallel(
                steps.unbatch(),
                lambda position, index, epoch, seed: self._mapped(position, index, epoch, seed, source.read(index)),
            )
        else:
            streamed = begun.flat_map(as_written(lambda *begun: self._streamed(source, *begun, full=full, last=last)))
            examples = map_in_parallel(streamed, self._mapped)
        check_one_for_one(examples.element_spec[1])
        # No step has more rows than a full one, so that these groups are the steps.
        is_even = self.rows.last_batch == self.rows.global_batch
        return batch_in_parallel(examples, max(full[1] - full[0], last[1] - last[0]), drop_remainder=is_even)

    def own_bounds(self, replicas: range, rows: int) -> Bounds:
        """The rows that some replicas take together of a step of `rows` rows; at least one."""
        bounds = self.rows.bounds(rows)
        first, last = replicas[0], replicas[-1]
        start, _ = with_stand_in(bounds[first], bounds[first + 1], rows)
        _, stop = with_stand_in(bounds[last], bounds[last + 1], rows)
        return start, stop

    def _split(self, positions: tf.Tensor, data: Any, replicas: LocalReplicas) -> tuple[ReplicaBatch, ...]:
        """What each replica of a worker takes of the worker's rows."""
        parts = []
        in_step = functools.partial(self.in_step, positions[0] // self.rows.global_batch)
        sizes = (self.rows.global_batch, self.rows.last_batch)
        rows = in_step(*sizes)
        for full, last in zip(*(self._shares(size, replicas) for size in sizes), strict=True):
            start, stop, count, first_row = (in_step(a, b) for a, b in zip(full, last, strict=True))
            part = data if replicas.here == 1 else take_rows(data, start, stop)
            numbers = (tf.cast(number, tf.int64) for number in (count, rows, first_row))
            parts.append(ReplicaBatch(part, *numbers))
        return tuple(parts)

    def _shares(self, rows: int, replicas: LocalReplicas) -> list[tuple[int, int, int, int]]:
        """Per replica of a worker: first and last row within the worker's, how many count, first in the batch."""
        bounds = self.rows.bounds(rows)
        offset = self.own_bounds(replicas.ids, rows)[0]
        shares = []
        for replica in replicas.ids:
            start, stop = with_stand_in(bounds[replica], bounds[replica + 1], rows)
            count = bounds[replica + 1] - bounds[replica]
            shares.append((start - offset, stop - offset, count, bounds[replica]))
        return shares

    def in_step(self, step: tf.Tensor, full: int, last: int) -> Any:
        """A number of a full step, or of the last one; a Python integer where they are the same."""
        if full == last:
            return full
        is_last = tf.equal(step, self.rows.num_steps - 1)
        return tf.where(is_last, tf.constant(last, tf.int64), tf.constant(full, tf.int64))

    def _steps(
        self, epoch: tf.Tensor, first: tf.Tensor, seed: tf.Tensor, *, full: Bounds, last: Bounds
    ) -> tf.data.Dataset:
        """`(positions, indices, epochs, seeds)` per step, all of them by row, so that it can be unbatched."""

        def step_rows(step: tf.Tensor) -> tuple[tf.Tensor, ...]:
            start, stop = (tf.cast(self.in_step(step, *sides), tf.int64) for sides in zip(full, last, strict=True))
            positions = step * self.rows.global_batch + tf.range(start, stop)
            if full == last:
                positions.set_shape([full[1] - full[0]])
            count = tf.shape(positions)
            return positions, self._indices(positions, epoch, seed), tf.fill(count, epoch), tf.fill(count, seed)

        return tf.data.Dataset.range(first, self.rows.num_steps).map(step_rows)

    def read_by_index(self, positions: tf.Tensor, epoch: int, seed: int) -> Any:
        """The examples at some positions of an epoch, as they are in the source."""
        if not isinstance(self.source, ArraySource):
            raise TypeError("Only arrays can be read by index.")
        return self.source.read(self._indices(positions, *(tf.constant(each, tf.int64) for each in (epoch, seed))))

    def _indices(self, positions: tf.Tensor, epoch: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Which examples stand at some positions of an epoch: computed for these alone, without a list of all."""
        if not self.buffer:
            return positions
        greatest = tf.constant(self.rows.num_examples - 1, tf.int64)
        return tf.random.experimental.index_shuffle(positions, tf.stack([seed, epoch]), greatest)

    def _streamed(
        self, source: StreamSource, epoch: tf.Tensor, first: tf.Tensor, seed: tf.Tensor, *, full: Bounds, last: Bounds
    ) -> tf.data.Dataset:
        """`(position, index, epoch, seed, example)` of the own rows, from a step on."""
        batch, num_steps = self.rows.global_batch, self.rows.num_steps
        order = tf.cast(fold(fold(as_seed(seed), epoch), seed)[0], tf.int64) if self.buffer else None
        used = (num_steps - 1) * batch + self.rows.last_batch
        placed = source.stream(order, self.buffer).skip(first * batch).enumerate(start=first * batch)

        def is_own(position: tf.Tensor, example: Any) -> tf.Tensor:
            del example
            step, row = position // batch, position % batch
            is_ours = (row >= self.in_step(step, full[0], last[0])) & (row < self.in_step(step, full[1], last[1]))
            return is_ours & (position < used)

        # A remainder is read too: what is not read to its end is not kept by `cache`.
        if (full, last, used) != ((0, batch), (0, self.rows.last_batch), source.num_examples):
            placed = placed.filter(is_own)
        return placed.map(lambda position, indexed: (position, indexed[0], epoch, seed, indexed[1]))

    def _mapped(self, position: tf.Tensor, index: tf.Tensor, epoch: tf.Tensor, seed: tf.Tensor, example: Any) -> Any:
        return position, self.example_map(index, epoch, seed, example)


def passes(begin: Callable[[], np.ndarray]) -> tf.data.Dataset:
    """One element, epoch, first step and seed of the pass that begins; asked for whenever it is iterated."""

    def begun(_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        numbers = tf.numpy_function(begin, [], tf.int64, stateful=True)
        numbers.set_shape([3])
        return numbers[0], numbers[1], numbers[2]

    return tf.data.Dataset.from_tensors(0).map(as_written(begun))
