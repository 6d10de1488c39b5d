"""Which share of the global batch does this replica hold?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfscale.replicas.all_reduce import all_reduce_sum, replica_number
from tfscale.replicas.lone_replica import LoneReplica
from tfscale.replicas.replica_batch import LocalReplicas, ReplicaBatch, has_rows, num_rows, places_of_rows
from tfscale.replicas.share import Share, in_share, num_replicas
from tfscale.step_context import Slot

_SIZES = Slot["tuple[int, ...] | None"]("sizes_of_parts")


def share_of(batch: ReplicaBatch) -> Share:
    """The share of the replica in whose context this is called; the replicas add up their rows if they must."""
    if batch.global_examples is None or batch.first_row is None:
        share = agree_on_share(batch.num_examples)
    else:
        share = make_share(batch.num_examples, batch.global_examples, batch.first_row)
    sizes = None if static_sizes(batch) is None else (_SIZES.value or ())
    return share._replace(logged_per_example=_logged_per_example(batch, share), static_sizes=sizes)


def sizes_of_parts(parts: Sequence[Any], replicas: LocalReplicas) -> tuple[int, ...] | None:
    """`Share.static_sizes` of the replicas of this process.

    Args:
        parts: What each of them gets.
        replicas: Which they are: of those of other workers nothing is known.
    """
    known = [static_sizes(part) if isinstance(part, ReplicaBatch) else None for part in parts]
    if any(sizes is None for sizes in known):
        return None
    return () if replicas.on_several_workers else tuple(sorted({size for sizes in known for size in sizes or ()}))


def knowing_sizes(sizes: tuple[int, ...] | None) -> contextlib.AbstractContextManager[None]:
    """Says on a replica what `sizes_of_parts` has found."""
    return _SIZES.carrying(sizes)


def static_sizes(batch: ReplicaBatch) -> tuple[int, ...] | None:
    """How many rows a replica's batch has, where its shapes say so; None where they do not."""
    leaves = tf.nest.flatten(batch.data)
    found = {leaves[place].shape[0] for place in places_of_rows(batch) if leaves[place].shape.rank}
    return None if None in found else tuple(sorted(found))


def _logged_per_example(batch: ReplicaBatch, share: Share) -> Any:
    """What each example weighs in the logged loss.

    Keras takes the rows of the first input for the number of examples, and that input may be a side input.
    """
    leaves = enumerate(tf.nest.flatten(batch.data))
    place, first = next((place, leaf) for place, leaf in leaves if has_rows(leaf))
    is_whole = dict(batch.whole).get(str(place))
    if is_whole is None:
        return 1.0
    weight = tf.cast(num_rows(first), tf.float32) / share.global_examples
    return weight if isinstance(is_whole, tuple) else tf.where(is_whole, weight, 1.0)


def make_share(num_examples: tf.Tensor, global_examples: tf.Tensor, first_row: tf.Tensor) -> Share:
    """The share of the replica in whose context this is called, of a batch whose numbers are known."""
    return _share(num_examples, global_examples, first_row, num_replicas())


def agree_on_share(num_examples: tf.Tensor) -> Share:
    """As `make_share` when each replica knows its own number of rows only: one collective of N numbers."""
    replica, replicas = replica_number(), num_replicas()
    (counts,) = all_reduce_sum([tf.one_hot(replica, replicas) * tf.cast(num_examples, tf.float32)])
    first_row = tf.cast(tf.reduce_sum(counts[:replica]), tf.int64)
    return _share(num_examples, tf.reduce_sum(counts), first_row, replicas)


def part_of(num_examples: tf.Tensor, global_examples: tf.Tensor) -> tf.Tensor:
    """n_i / n in float64, so that a script in float64 keeps its precision; to be cast where it is used."""
    return tf.cast(num_examples, tf.float64) / tf.cast(global_examples, tf.float64)


def _share(num_examples: tf.Tensor, global_examples: tf.Tensor, first_row: tf.Tensor, replicas: int) -> Share:
    num_examples = tf.cast(num_examples, tf.float32)
    global_examples = tf.cast(global_examples, tf.float32)
    return Share(num_examples, global_examples, part_of(num_examples, global_examples), first_row, replicas)


def make_lone_share(num_examples: tf.Tensor) -> Share:
    """The share of a replica that computes all rows by itself: nothing is weighted, exchanged or added up."""
    count = tf.cast(num_examples, tf.float32)
    return Share(count, count, tf.constant(1.0, tf.float64), tf.constant(0, tf.int64), 1)


@contextlib.contextmanager
def as_lone_replica(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Lets this thread run a step on the device of the first replica here as if it computed all rows by itself."""
    device = tf.device(strategy.extended.worker_devices[0])
    with LoneReplica(strategy), device, in_share(make_lone_share(tf.constant(1, tf.int64))):
        yield
