"""Does a step divide by a sum over a replica's own rows?

`tf.reduce_sum(loss * mask) / tf.reduce_sum(mask)` is the mean of each replica's own entries. As long as all rows have
as many, as where no sequence is filled up or all weights are one, the mean over the replicas is that of one; the first
batch with others shows it, or none that is looked at. No number tells that in advance, but the graph does.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from tfscale.replicas.graph_walk import QUOTIENTS
from tfscale.replicas.marks import MADE_GOOD, marked
from tfscale.training.check.thresholds import Asked, taken_apart


def divided_apart(
    strategy: tf.distribute.Strategy, first: int, results: Any, sizes: Collection[int | None]
) -> list[str]:
    """Names of the operations that divide by a number, of a replica's own rows, that is not one of each row.

    How many entries a mask leaves is such a number. What tfscale divides by, and makes good, is none.

    Args:
        strategy: That of the step. To be called in the graph in which its `run` was.
        first: How many operations the graph had before the step.
        results: What its `run` returned.
        sizes: For how many rows it was traced, by each replica; None for any number.
    """
    return taken_apart(strategy, first, results, sizes, _divides_by, counts_values=True)


def _divides_by(op: Any) -> list[Asked]:
    if op.type not in QUOTIENTS or id(op.inputs[1]) in marked(op.graph, MADE_GOOD):
        return []
    return [Asked(op.inputs[1], 1)]
