"""The unpromised names of values of several replicas that leave a `tf.function`."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import values as distributed_values

from tfscale.errors import ModelError

_log = logging.getLogger(__name__)

_LIBRARIES = ("tensorflow.", "keras.", "tfscale.")
# Runs the user's own `x[0]` in a `tf.function`.
_IN_PLACE_OF_USER = "tensorflow.python.autograph."


class OwnResults(tuple[Any, ...]):
    """What the replicas of this process have; whoever takes that of one alone is told that it is no more.

    A loop by hand logs `strategy.experimental_local_results(loss)[0]`, or `loss.values[0]`: of one replica's own rows,
    and on one device of all.

    Args:
        values: By replica.
        tell: Called where one is taken; may raise.
    """

    _tell: Callable[[], None] | None

    def __new__(cls, values: Iterable[Any], tell: Callable[[], None] | None = None) -> OwnResults:
        """A tuple."""
        made = super().__new__(cls, values)
        made._tell = tell
        return made

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if self._tell is not None and not isinstance(index, slice):
            asking = sys._getframe(1).f_globals.get("__name__", "")
            if asking.startswith(_IN_PLACE_OF_USER) or not asking.startswith(_LIBRARIES):
                self._tell()
        return super().__getitem__(index)


def refuse_one_alone() -> None:
    """Of parts of a sum, or of means over own rows, one says nothing of the others.

    Raises:
        ModelError: Always.
    """
    raise ModelError(
        "Of what the replicas have of a batch, that of one replica is not what one device has.\n"
        "Received: `strategy.experimental_local_results(...)[i]`, or `.values[i]`, of such parts or means. Write "
        '`strategy.reduce("SUM", ...)` for parts of a sum, and `strategy.reduce("MEAN", ...)` for means.'
    )


@functools.cache
def warn_of_one_alone() -> None:
    """Says once that what one replica has is of its own rows."""
    _log.warning(
        "`strategy.experimental_local_results(...)[i]`, or `.values[i]`, is what one replica has, and the others have "
        "something else: on one device that number is of all rows. `strategy.reduce` has it of all replicas"
    )


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
    def values(self) -> OwnResults:
        """By replica of this process."""
        return OwnResults(super().values, functools.partial(tell_of_one, self))

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


def tell_of_one(value: Any) -> None:
    """Says what one of the replicas' values is, where the others have something else; what carries no rows is left out.

    Raises:
        ModelError: When it is part of a sum, or a mean of own rows.
    """
    own = tuple(value.values) if isinstance(value, OfRows) else ()
    if len(own) < 2:
        return
    if kind_of(value):
        refuse_one_alone()
    if not any(map(tf.is_symbolic_tensor, own)) and not all(_are_equal(own[0], each) for each in own[1:]):
        warn_of_one_alone()


def _are_equal(one: Any, other: Any) -> bool:
    return one.shape == other.shape and bool(np.all(one.numpy() == other.numpy()))
