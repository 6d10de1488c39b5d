"""The unpromised names of values of several replicas that leave a `tf.function`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values as distributed_values


class _OfRowsSpec(distributed_values.PerReplicaSpec):
    """The values of the replicas, and then their rows."""

    value_type = property(lambda self: OfRows)

    def _to_components(self, value: Any) -> Any:
        return (*super()._to_components(value), *value.rows)

    def _from_components(self, components: Any) -> Any:
        half = len(components) // 2
        return OfRows(components[:half], components[half:])


class OfRows(distributed_values.PerReplica):
    """A value of several replicas, with the number of rows that each has made its own of.

    Why: what leaves a `tf.function` is made anew of its tensors, so nothing that is noted of it outlives that, but
    what are such tensors as well.
    Breaks first: tests/training/step/test_hand_means.py.

    Args:
        values: By replica of this process.
        rows: Likewise, int64 tensors; negative where they are not known.
    """

    def __init__(self, values: Sequence[Any], rows: Sequence[tf.Tensor]):
        super().__init__(values)
        self.rows = tuple(rows)

    @property
    def _type_spec(self) -> Any:
        return _OfRowsSpec(*(tf.type_spec_from_value(each) for each in (*self.values, *self.rows)))


def with_rows(value: Any, rows: Sequence[tf.Tensor]) -> Any:
    """A value of several replicas that knows of how many rows each of it is; any other as it is."""
    if type(value) is not distributed_values.PerReplica or not all(map(tf.is_tensor, value.values)):
        return value
    return OfRows(value.values, rows)


def rows_of(value: Any) -> Sequence[tf.Tensor] | None:
    """Of how many rows each replica's value is; None for a value that does not say."""
    return value.rows if isinstance(value, OfRows) else None
