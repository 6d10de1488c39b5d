"""What does each replica draw by itself, though it is one thing for the whole batch?

Where Keras draws it, all replicas draw the same. `tf.random` is asked by the graph, which gives each of them numbers of
its own: of a scale, noise on weights or a choice each has another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfscale.exact.silence import shape_drawn
from tfscale.gradients.own_noise import draws_by_itself
from tfscale.replicas.replica_walk import Frame, ReplicaWalk


def own_draws(strategy: tf.distribute.Strategy, first: int, sizes: Collection[int | None]) -> list[str]:
    """Names of the operations of a divided step that draw by themselves what has no rows.

    Args:
        strategy: That of the step. To be called in the graph in which its `run` was.
        first: How many operations the graph had before the step.
        sizes: How many rows replicas have, where shapes tell.
    """
    walk, graph = ReplicaWalk(strategy), tf.compat.v1.get_default_graph()
    rows = {each for size in sizes if size is not None for each in (size, 2 * size)}
    return sorted(set(_found(walk, Frame(graph), graph.get_operations()[first:], rows)))


def describe_own_draws(names: Sequence[str], what: str) -> str:
    """The text of a warning.

    Args:
        names: What `own_draws` returned.
        what: The step, for people.
    """
    return (
        f"the {what} draws something of a shape that has no rows ({', '.join(names[:3])}), by `tf.random` or a seed of "
        "`SeedGenerator.next()`: each replica draws another one, where one device draws one for the whole batch. Draw "
        "it by `keras.random` with a `keras.random.SeedGenerator`, which is the same on all replicas and on one device"
    )


def _found(walk: ReplicaWalk, frame: Frame, operations: Sequence[Any], rows: Collection[int]) -> Iterator[str]:
    for op in operations:
        shape = shape_drawn(op)
        if shape is not None and not set(shape) & set(rows) and draws_by_itself(op):
            yield op.name.removeprefix("replica_1/")
        for body in walk.bodies(op, frame):
            yield from _found(walk, body, body.graph.get_operations(), rows)
