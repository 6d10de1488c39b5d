"""The unpromised names of values of several replicas that leave a `tf.function`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values as distributed_values


class _OfRowsSpec(distributed_values.PerReplicaSpec):
    """The values of the replicas, then their rows, and of what kind they are, if that is known."""

    value_type = property(lambda self: OfRows)

    def _to_components(self, value: Any) -> Any:
        return (*super()._to_components(value), *value.rows, *value.kinds)

    def _from_components(self, components: Any) -> Any:
        half = len(components) // 2
        return OfRows(components[:half], components[half : 2 * half], components[2 * half :])


class OfRows(distributed_values.PerReplica):
    """A value of several replicas, with the number of rows that each has made its own of.

    Why: what leaves a `tf.function` is made anew of its tensors, so nothing that is noted of it outlives that, but
    what are such tensors as well.
    Breaks first: tests/training/step/test_hand_means.py.

    Args:
        values: By replica of this process.
        rows: Likewise, int64 tensors; negative where they are not known.
        kinds: One number that says what all of them are to whoever has made them, a tensor; or none.
    """

    def __init__(self, values: Sequence[Any], rows: Sequence[tf.Tensor], kinds: Sequence[tf.Tensor]):
        super().__init__(values)
        self.rows = tuple(rows)
        self.kinds = tuple(kinds)

    @property
    def _type_spec(self) -> Any:
        return _OfRowsSpec(*(tf.type_spec_from_value(each) for each in (*self.values, *self.rows, *self.kinds)))


def with_rows(value: Any, rows: Sequence[tf.Tensor], kind: int) -> Any:
    """A value of several replicas that knows of how many rows each of it is, and its kind; any other as it is."""
    if type(value) is not distributed_values.PerReplica or not all(map(tf.is_tensor, value.values)):
        return value
    return OfRows(value.values, rows, [tf.constant(kind)] if kind else [])


def rows_of(value: Any) -> Sequence[tf.Tensor] | None:
    """Of how many rows each replica's value is; None for a value that does not say."""
    return value.rows if isinstance(value, OfRows) else None


def kind_of(value: Any) -> int:
    """Of what kind a value said that it is; 0 where it does not, or in a graph to which that was given."""
    kinds = value.kinds if isinstance(value, OfRows) else ()
    known = [int(kind) for each in kinds if (kind := tf.get_static_value(each)) is not None]
    return known[0] if known else 0
