"""On which rows is a step looked at?

A few of the first batch, so that it costs little, and not the same number on every replica, so that a mean of means
shows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.training.agreement import gather_rows_of_workers
from tfscale.training.inputs import (
    ReplicaBatch,
    count_rows,
    has_rows,
    local_replicas,
    num_rows,
    split_rows,
    take_rows,
    unsplit_batch,
)

_ALL = 2**31 - 1


class CheckRows(NamedTuple):
    """Rows of a global batch, whole and divided."""

    whole: Any
    parts: tuple[ReplicaBatch, ...]
    """Of the replicas of this process."""
    num_rows: int

    @classmethod
    def of(cls, batch: Any, strategy: tf.distribute.Strategy, *, all_rows: bool = False) -> CheckRows:
        """The first rows of a batch, one more than there are replicas.

        Args:
            batch: A global batch, one `ReplicaBatch` for each replica here, or what TensorFlow distributed.
            strategy: Whose replicas are to get them.
            all_rows: Whether the whole batch is taken, for a step that does not run on a few rows.
        """
        replicas = local_replicas(strategy)
        most = _ALL if all_rows else replicas.total + 1
        data, places = _whole(batch, strategy, most)
        data = keras.tree.map_structure(_present, data)
        # Decided by the whole batch: beside a few rows, a side input may look like more of them.
        whole = {str(place): () for place in places}
        held = (leaf for place, leaf in enumerate(tf.nest.flatten(data)) if has_rows(leaf) and place not in places)
        count = min(int(num_rows(next(held))), most)
        first = take_rows(data, 0, count, whole)
        return cls(first, split_rows(first, count, whole or (), replicas), count)

    def times(self, factor: float) -> CheckRows:
        """The same rows with all floating-point inputs multiplied; labels and weights stay."""

        def scaled(data: Any) -> Any:
            x, *others = data if isinstance(data, tuple) else (data,)
            x = keras.tree.map_structure(
                lambda leaf: leaf * factor if isinstance(leaf, tf.Tensor) and leaf.dtype.is_floating else leaf, x
            )
            return (x, *others) if isinstance(data, tuple) else x

        parts = tuple(part._replace(data=scaled(part.data)) for part in self.parts)
        return self._replace(whole=scaled(self.whole), parts=parts)


def _present(leaf: Any) -> Any:
    return None if isinstance(leaf, tf.experimental.Optional) else leaf


def _whole(batch: Any, strategy: tf.distribute.Strategy, count: int) -> tuple[Any, set[int]]:
    """That many rows at least, if there are, and the places of the side inputs."""
    if isinstance(batch, tuple) and batch and all(isinstance(part, ReplicaBatch) for part in batch):
        counted = [part for part in batch if int(part.num_examples)]
        own = [take_rows(part.data, 0, int(part.num_examples), part.whole) for part in counted]
        places = _places(batch[0].whole)
        return _concat_rows(own or [batch[0].data], strategy, count, places), places
    if any(isinstance(leaf, tf.distribute.DistributedValues) for leaf in tf.nest.flatten(batch)):
        here = len(strategy.extended.worker_devices)
        own = [
            tf.nest.map_structure(lambda leaf, index=index: strategy.experimental_local_results(leaf)[index], batch)
            for index in range(here)
        ]
        parts = [part if isinstance(part, ReplicaBatch) else unsplit_batch(part) for part in own]
        places = _places(parts[0].whole)
        return _concat_rows([part.data for part in parts], strategy, count, places), places
    data = tf.nest.map_structure(lambda leaf: leaf if _is_special(leaf) else tf.convert_to_tensor(leaf), batch)
    return data, _places(count_rows(data)[1])


def _is_special(leaf: Any) -> bool:
    return leaf is None or tf.is_tensor(leaf) or isinstance(leaf, tf.experimental.Optional)


def _places(whole: Any) -> set[int]:
    """The leaves that every replica has whole."""
    return {int(place) for place, known in dict(whole).items() if isinstance(known, tuple) or bool(known)}


def _concat_rows(parts: list[Any], strategy: tf.distribute.Strategy, count: int, whole: Collection[int]) -> Any:
    def together(*leaves: Any) -> Any:
        if not has_rows(leaves[0]):
            return leaves[0]
        if isinstance(leaves[0], tf.SparseTensor):
            return tf.sparse.concat(axis=0, sp_inputs=list(leaves))
        return tf.concat(list(leaves), axis=0)

    leaves = list(zip(*(tf.nest.flatten(part) for part in parts), strict=True))
    flat = [each[0] if place in whole else together(*each) for place, each in enumerate(leaves)]
    divided = [place for place in range(len(flat)) if place not in whole]
    # A side input is on every worker already.
    everyone = gather_rows_of_workers(strategy, take_rows([flat[place] for place in divided], 0, count))
    for place, leaf in zip(divided, everyone, strict=True):
        flat[place] = leaf
    return tf.nest.pack_sequence_as(parts[0], flat)
