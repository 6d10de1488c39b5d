"""How does a metric count one number of a batch that a loop by hand gives it on each replica?

One device counts it once. Parts of a sum are added up, a mean over own rows counts by how many these are, and what is
the same on all replicas is counted in parts that make one.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.numbers_of_loops import Kind, kind_of_number
from tfscale.replicas.graph_walk import plain_number
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_count import own_rows, part_asked_for

_log = logging.getLogger(__name__)

# Metrics of which it was said once that they are given numbers of replicas.
WARNED = Fact[weakref.WeakSet[keras.metrics.Metric]](ReplicaGroup, "warned_of", lambda each: [one.name for one in each])


def number_as_counted(metric: keras.metrics.Metric, value: Any, weight: Any) -> tuple[Any, Any]:
    """A number and its weight, with which the states of all replicas together are those of one device.

    To be called by a replica, in a loop by hand. One that runs eagerly is warned of, once: nothing tells there what the
    number is made of.

    Args:
        metric: That is to count it, a sum or a mean.
        value: A number.
        weight: That was given with it, a number or None.

    Raises:
        ModelError: When nobody knows what the number is.
    """
    part = part_asked_for()
    number = tf.convert_to_tensor(value)
    if part is None or tf.executing_eagerly() or _may_be_either(number):
        _warn_of(metric)
        return value, weight
    kind = kind_of_number(number)
    weight_kind = Kind.ALIKE if weight is None else kind_of_number(tf.convert_to_tensor(weight))
    if kind is None or weight_kind in (None, Kind.MEAN):
        raise ModelError(
            "What a metric counts in a loop by hand must be numbers of the examples, or one of the batch of which the "
            "graph tells what it is: a replica's part of a sum, or the mean over its rows.\n"
            f"Received: metric {metric.name!r}, which is given one number by each replica "
            f"({getattr(number, 'name', number)!r}). Give it a number for each example, or update it with what "
            '`strategy.reduce("SUM", ...)` returns.'
        )
    own = part(metric.dtype)
    number = tf.cast(number, metric.dtype)
    # A replica without rows has no part, and no mean.
    number = tf.math.divide_no_nan(number, own) if kind is Kind.PART else tf.where(own > 0, number, 0)
    if weight is None:
        return number, own
    return number, weight if weight_kind is Kind.PART else own * tf.cast(weight, metric.dtype)


def _warn_of(metric: keras.metrics.Metric) -> None:
    warned = WARNED.ensure(tf.distribute.get_strategy(), weakref.WeakSet())
    if metric in warned:
        return
    warned.add(metric)
    _log.warning(
        "metric %r is given one number by each replica in `strategy.run`, and logs their mean, which one device does "
        "not: a part of a sum comes out too small. Give it a number for each example, or update it with what "
        '`strategy.reduce("SUM", ...)` returns',
        metric.name,
    )


def _may_be_either(number: tf.Tensor) -> bool:
    """Whether it is one where there is one row: how many rows there are, or a number."""
    return plain_number(number) == 1 == own_rows()
