"""How do all workers do the same at the same step, and learn what only the chief knows?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfscale.replicas.all_reduce import all_reduce_sum, replica_id
from tfscale.replicas.replica_batch import local_replicas


class Vote(NamedTuple):
    """What a worker wants, and what all have agreed on."""

    stop: bool
    """End after this step; one worker suffices."""
    save: bool
    """Save at this step; the chief decides."""
    next_agreement: int
    """Calls until the next vote; the chief decides."""


class Workers:
    """The workers of a job, as far as they have to agree. All must call the same methods in the same order.

    Args:
        strategy: Of the job.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        self._replicas = local_replicas(strategy)

        @tf.function(autograph=False)
        def add_up(vector: tf.Tensor) -> Any:
            return strategy.run(self._add_up, args=([vector],))

        # Kept, because it runs again and again.
        self._vote = add_up

    @property
    def are_several(self) -> bool:
        """Whether there is anybody to agree with."""
        return self._replicas.on_several_workers

    @property
    def is_chief(self) -> bool:
        """Whether this one decides, reads and writes."""
        return self._replicas.first == 0

    def agree(self, own: Vote) -> Vote:
        """Returns what all do; one small reduction."""
        if not self.are_several:
            return own
        mine = [own.stop, own.save and self.is_chief, own.next_agreement if self.is_chief else 0]
        stop, save, following = self._first(self._vote(tf.constant(np.array(mine, np.int32))))[0].numpy()
        return Vote(bool(stop), bool(save), int(following))

    def from_chief(self, value: Any) -> Any:
        """Returns the chief's `value`, which JSON can hold, on every worker."""
        if not self.are_several:
            return value
        text = np.frombuffer(json.dumps(value).encode() if self.is_chief else b"", np.uint8)
        [length] = self.arrays_from_chief([np.array(len(text), np.int32)])
        if not self.is_chief:
            text = np.zeros(int(length), np.uint8)
        [text] = self.arrays_from_chief([text])
        return json.loads(text.tobytes())

    def arrays_from_chief(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the chief's arrays on every worker, which gives arrays of the same shapes and types.

        They are added up, the chief's and zeros: exact for numbers of every kind.
        """
        if not self.are_several or not arrays:
            return list(arrays)
        sent = [_for_wire(array if self.is_chief else np.zeros_like(array)) for array in arrays]

        @tf.function(autograph=False)
        def add_up(tensors: list[tf.Tensor]) -> Any:
            return self._strategy.run(self._add_up, args=(tensors,))

        received = self._first(add_up([tf.constant(array) for array in sent]))
        return [value.numpy().astype(array.dtype) for value, array in zip(received, arrays, strict=True)]

    def _add_up(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        # Only one replica of each worker speaks for it.
        if replica_id() != self._replicas.first:
            tensors = [tf.zeros_like(tensor) for tensor in tensors]
        return all_reduce_sum(tensors)

    def _first(self, values: Any) -> Any:
        return tf.nest.map_structure(lambda value: self._strategy.experimental_local_results(value)[0], values)


def _for_wire(array: np.ndarray) -> np.ndarray:
    """Collectives know floats, int32 and int64."""
    return array.astype(np.int64) if array.dtype.kind in "biu" else array
