"""How does each replica draw random numbers of its own?

Keras keeps the state of every `SeedGenerator` as one variable with equal copies, so dropout, noise and augmentation
draw the same numbers on every replica. Here the state stays equal on all replicas, which keeps it one value to save
and to load, and the replica's number is mixed into each seed as it is drawn. Replica 0 draws what one replica would.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf

from tfscale.training import _tf_private
from tfscale.training.all_reduce import replica_id
from tfscale.training.divided_calls import divides_calls
from tfscale.training.share import num_replicas

# The odd integer nearest to 2^32 / golden ratio: multiples of it stay far apart modulo 2^32 (Knuth, TAOCP 6.4).
_STRIDE = 0x9E3779B1
_WORD = 2**31 - 1


def replica_seed(seed: tf.Tensor, replica: int) -> tf.Tensor:
    """The seed of one replica's stream.

    first word -> (first word + replica * stride) mod (2^31 - 1); the second word counts draws and stays.

    Args:
        seed: Integer tensor `[2]`, as `SeedGenerator.next` returns it.
        replica: Global id of the replica; 0 leaves the seed as it is.

    Returns:
        Integer tensor `[2]`, same dtype.
    """
    if replica == 0:
        return seed
    offset = tf.constant(replica * _STRIDE % _WORD, seed.dtype)
    return tf.stack([tf.math.floormod(seed[0] + offset, tf.constant(_WORD, seed.dtype)), seed[1]])


def micro_step_seed(seed: tf.Tensor, index: Any) -> tf.Tensor:
    """The state from which micro-step `index` of this replica draws, so that no two of all replicas draw alike.

    `replica_seed` adds the replica's number to what is drawn; with N replicas this adds N * index before.

    Args:
        seed: State of a generator before the step, integer tensor `[2]`.
        index: Number of the micro-step, an integer or an integer tensor; 0 leaves the state as it is.
    """
    part = tf.cast(index, tf.int64) * num_replicas()
    first = tf.math.floormod(tf.cast(seed[0], tf.int64) + part * _STRIDE % _WORD, _WORD)
    return tf.stack([tf.cast(first, seed.dtype), seed[1]])


def separate_random_streams(model: keras.Model) -> None:
    """Makes every seed generator of `model` draw an independent stream on every replica. Idempotent."""
    for generator in _tf_private.seed_generators(model):
        generator.next = functools.partial(_next_of_replica, generator)


def _next_of_replica(generator: keras.random.SeedGenerator, ordered: bool = True) -> tf.Tensor:
    seed = type(generator).next(generator, ordered)
    # Between the calls of layers that are divided, every replica draws what one would.
    is_alone = divides_calls() and num_replicas() == 1
    return replica_seed(seed, replica_id()) if tf.distribute.get_replica_context() and not is_alone else seed
