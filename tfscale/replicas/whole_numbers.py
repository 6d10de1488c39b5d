"""What do replicas hold of a whole number that each of them counts, when a script sets it?

TensorFlow gives every replica an equal part. A part of a whole number is none, and is cut off: 17 rows that a metric
had counted outside of replicas were 15 on three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfscale.replicas.counted import is_counted
from tfscale.replicas.replica_batch import local_replicas
from tfscale.replicas.undisturbed import undisturbed


def assign_whole(variable: Any, value: Any, as_tensorflow: Callable[[], Any]) -> Any:
    """Sets a variable: outside of replicas, the first of all gets the whole of a whole number that they count.

    There Ctrl-C waits until every replica has the new value.

    Args:
        variable: Of the replicas.
        value: Its new value.
        as_tensorflow: Sets it as TensorFlow does.

    Returns:
        The variable, or what TensorFlow returns.
    """
    if _is_in_replica():
        return as_tensorflow()
    with undisturbed():
        if not (variable.dtype.is_integer and is_counted(variable)):
            return as_tensorflow()
        strategy = variable.distribute_strategy
        value = tf.cast(value, variable.dtype)
        copies = strategy.experimental_local_results(variable)
        for replica, copy in zip(local_replicas(strategy).ids, copies, strict=True):
            copy.assign(tf.zeros_like(value) if replica else value)
        return variable


def _is_in_replica() -> bool:
    return tf.distribute.has_strategy() and tf.distribute.get_replica_context() is not None
