"""How do the examples of a source become the rows that some replicas take, epoch by epoch?

One pipeline serves all epochs: where a pass begins is asked when it begins, so that nothing is made or traced anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.errors import DataError
from tfscale.training.data.rows import EpochRows, with_stand_in
from tfscale.training.data.source import ArraySource, StreamSource

Bounds = tuple[int, int]


@dataclass(frozen=True)
class Pipeline:
    """What is done with the examples of a source.

    Args:
        source: Where they are read.
        rows: How they become steps.
        map_fn: As `GlobalDataset`, or None.
        buffer: Examples among which a stream is mixed; 0 for no shuffling at all.
        begin: Epoch, first step and seed of the pass that begins, int64 `[3]`; called once per pass.
    """

    source: ArraySource | StreamSource
    rows: EpochRows
    map_fn: Callable[..., Any] | None
    buffer: int
    begin: Callable[[], np.ndarray]

    def rows_of(self, replicas: range) -> tf.data.Dataset:
        """`(positions, data)` per step: the rows of replicas that follow each other, and their places in the epoch."""
        begun = tf.data.Dataset.from_tensors(0).map(lambda _: self._begun())
        full, last = (self.own_bounds(replicas, rows) for rows in (self.rows.global_batch, self.rows.last_batch))
        source = self.source
        if isinstance(source, ArraySource):
            steps = begun.flat_map(lambda *begun: self._steps(*begun, full=full, last=last))
            if self.map_fn is None:
                return _map_in_parallel(steps, lambda positions, indices, *_: (positions, source.read(indices)))
            examples = _map_in_parallel(
                steps.flat_map(_one_by_one),
                lambda position, index, epoch, seed: self._mapped(position, index, epoch, seed, source.read(index)),
            )
        else:
            streamed = begun.flat_map(lambda *begun: self._streamed(source, *begun, full=full, last=last))
            examples = _map_in_parallel(streamed, self._mapped)
        _check_one_for_one(examples.element_spec[1])
        # No step has more rows than a full one, so that these groups are the steps.
        is_even = self.rows.last_batch == self.rows.global_batch
        return examples.batch(
            max(full[1] - full[0], last[1] - last[0]),
            drop_remainder=is_even,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )

    def own_bounds(self, replicas: range, rows: int) -> Bounds:
        """The rows that some replicas take together of a step of `rows` rows; at least one."""
        bounds = self.rows.bounds(rows)
        first, last = replicas[0], replicas[-1]
        start, _ = with_stand_in(bounds[first], bounds[first + 1], rows)
        _, stop = with_stand_in(bounds[last], bounds[last + 1], rows)
        return start, stop

    def in_step(self, step: tf.Tensor, full: int, last: int) -> Any:
        """A number of a full step, or of the last one; a Python integer where they are the same."""
        if full == last:
            return full
        is_last = tf.equal(step, self.rows.num_steps - 1)
        return tf.where(is_last, tf.constant(last, tf.int64), tf.constant(full, tf.int64))

    def _begun(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        begun = tf.numpy_function(self.begin, [], tf.int64, stateful=True)
        begun.set_shape([3])
        return begun[0], begun[1], begun[2]

    def _steps(
        self, epoch: tf.Tensor, first: tf.Tensor, seed: tf.Tensor, *, full: Bounds, last: Bounds
    ) -> tf.data.Dataset:
        """`(positions, indices, epoch, seed)` per step."""

        def step_rows(step: tf.Tensor) -> tuple[tf.Tensor, ...]:
            start, stop = (tf.cast(self.in_step(step, *sides), tf.int64) for sides in zip(full, last, strict=True))
            positions = step * self.rows.global_batch + tf.range(start, stop)
            if full == last:
                positions.set_shape([full[1] - full[0]])
            return positions, self._indices(positions, epoch, seed), epoch, seed

        return tf.data.Dataset.range(first, self.rows.num_steps).map(step_rows)

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
        order = tf.cast(_fold(_fold(_as_seed(seed), epoch), seed)[0], tf.int64) if self.buffer else None
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
        if self.map_fn is None:
            return position, example
        place = _place_of_seed(self.map_fn)
        if place is None:
            return position, self.map_fn(example)
        example_seed = _fold(_fold(_as_seed(seed), epoch), index)
        if place == "by name":
            return position, self.map_fn(example, seed=example_seed)
        return position, self.map_fn(example, example_seed)


def _map_in_parallel(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    return dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _one_by_one(positions: tf.Tensor, indices: tf.Tensor, epoch: tf.Tensor, seed: tf.Tensor) -> tf.data.Dataset:
    rows = tf.data.Dataset.from_tensor_slices((positions, indices))
    return rows.map(lambda position, index: (position, index, epoch, seed))


def _as_seed(seed: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.stack([seed % 2**31, seed // 2**31]), tf.int32)


def _fold(seed: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """A stateless seed, int32 `[2]`, of a seed and a number; its second word is the number itself."""
    return tf.random.fold_in(seed, tf.cast(number, tf.int32))


def _place_of_seed(map_fn: Callable[..., Any]) -> str | None:
    """How a `map_fn` wants a seed beside its example: as an argument of that name, as its second, or not at all."""
    parameters = inspect.signature(map_fn).parameters
    if "seed" in parameters:
        return "by name"
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [
        each for each in parameters.values() if each.kind in positional and each.default is inspect.Parameter.empty
    ]
    return "second" if len(required) >= 2 else None


def _check_one_for_one(spec: Any) -> None:
    if any(isinstance(leaf, tf.data.DatasetSpec) for leaf in tf.nest.flatten(spec)):
        raise DataError(
            "`map_fn` must turn one example into one example.\n"
            "Received: a map_fn that returns a dataset. Apply it to the source with .flat_map(...) before."
        )
