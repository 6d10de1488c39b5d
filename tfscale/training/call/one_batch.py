"""How does a batch that was taken from its iterator, to be looked at, still get to a step like those around it?

A step that is traced for the batch itself knows how many rows it has, and Keras weights what it logs of a loss by what
it knows of them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfscale.framework.datasets import spec_of_replica
from tfscale.replicas.copied_ahead import in_turn_on_gpus
from tfscale.replicas.replica_batch import of_replica


def iterator_of_one(batch: Any, like: Any, strategy: tf.distribute.Strategy) -> Any:
    """An iterator over one batch that was taken from `like`, for which a step is not traced anew, or None.

    Args:
        batch: A global batch, or what each replica here gets.
        like: Where it is from.
        strategy: Whose replicas get it.
    """
    if isinstance(like, tf.distribute.DistributedIterator):
        replicas = range(len(strategy.extended.worker_devices))
        parts = tuple(of_replica(strategy, batch, replica) for replica in replicas)
        specs = tuple(spec_of_replica(like.element_spec, replica) for replica in replicas)
        dataset = in_turn_on_gpus(_of_one(parts, specs), strategy)
    else:
        dataset = _of_one(batch, like.element_spec)
    return iter(dataset) if dataset.element_spec == like.element_spec else None


def _of_one(element: Any, specs: Any) -> tf.data.Dataset:
    """Of one element, of which it knows no more than the specs say."""

    @tf.autograph.experimental.do_not_convert
    def as_before(*parts: Any) -> Any:
        return tf.nest.map_structure(_as_specified, parts if isinstance(element, tuple) else parts[0], specs)

    return tf.data.Dataset.from_tensors(element).map(as_before)


def _as_specified(leaf: Any, spec: Any) -> Any:
    if isinstance(leaf, tf.Tensor):
        return tf.compat.v1.placeholder_with_default(leaf, spec.shape)
    if not tf.is_tensor(leaf):
        return leaf
    # Ragged and sparse ones are made of tensors.
    held, specs = (tf.nest.flatten(each, expand_composites=True) for each in (leaf, spec))
    return tf.nest.pack_sequence_as(spec, list(map(_as_specified, held, specs)), expand_composites=True)
