"""Of which variables does each replica count a part, and what do all begin with?

What they hold is added up where it is read. TensorFlow has every replica begin with all of what the variable is made
with: a number that begins with one would be three on three of them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def is_counted(variable: Any) -> bool:
    """Whether each replica counts its own, and the copies are added up where they are read."""
    is_sum = getattr(variable, "aggregation", None) == tf.VariableAggregation.SUM
    return is_sum and getattr(variable, "synchronization", None) == tf.VariableSynchronization.ON_READ


def begin_together(variable: Any, begun: tf.Tensor) -> None:
    """Has all replicas together begin with what one would.

    Args:
        variable: One that is counted and was just made, eagerly.
        begun: With what each copy was made.
    """
    if not begun.dtype.is_bool and tf.math.count_nonzero(begun):
        variable.assign(begun)
