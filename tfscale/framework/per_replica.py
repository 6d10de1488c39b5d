"""The unpromised names of values of several replicas that leave a `tf.function`."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, SupportsIndex

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import values as distributed_values

from tfscale.errors import ModelError

_log = logging.getLogger(__name__)

_LIBRARIES = ("tensorflow.", "keras.", "tfscale.")
# Runs the user's own `x[0]` in a `tf.function`.
_IN_PLACE_OF_USER = "tensorflow.python.autograph."


# What numbers of the replicas are, in what leaves a function.
PARTS, MEANS, ALIKE = 1, 2, 3
OF_OWN_ROWS = (PARTS, MEANS)


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
        return self.value_type(components[:half], components[half : 2 * half], components[2 * half :])


class OfRows(distributed_values.PerReplica):
    """A value of several replicas, with the number of rows that each has made its own of.

    Why: what leaves a `tf.function` is made anew of its tensors, so nothing that is noted of it outlives that, but
    what are such tensors as well.
    Breaks first: tests/training/step/test_hand_means.py.

    Args:
        values: By replica of this process.
        rows: Likewise, int64 tensors; negative where they are not known.
        kinds: One number that says what all of them are, such as `PARTS`, a tensor; or none.
    """

    _kind_of_spec: type[_OfRowsSpec] = _OfRowsSpec

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
        return self._kind_of_spec(*(tf.type_spec_from_value(each) for each in (*self.values, *self.rows, *self.kinds)))


class _OneOfSeveralSpec(_OfRowsSpec):
    """As its own."""

    value_type = property(lambda self: OneOfSeveral)


class _UnreadableError(ModelError, AttributeError):
    """For whoever asks whether there is such an attribute there is none."""


_OF_ONE_WORKER = (
    "Of what the workers have of a batch, that of one worker is not what one device has.\n"
    "Received: a number that `strategy.run` has returned of this worker's rows, which is read or goes into another "
    'operation. Write `strategy.reduce("SUM", ...)` for parts of a sum, and `strategy.reduce("MEAN", ...)` for means, '
    "on all workers. What one worker computes of data that it alone has, call without `strategy.run`."
)


class OneOfSeveral(OfRows):
    """What the lone replica of one of several workers has of its own rows: a part of a sum, or a mean.

    Why: TensorFlow gives a lone replica's results as they are, and on one device that tensor is of all rows: whoever
    read it had one worker's number, and no error, as it is where a worker has several replicas.
    Breaks first: tests/training/step/test_hand_means.py.
    """

    _kind_of_spec = _OneOfSeveralSpec

    def __getattr__(self, name: str) -> Any:
        # Of a tensor: `numpy`, `shape`, `dtype`.
        raise _UnreadableError(_OF_ONE_WORKER)

    def __format__(self, spec: str) -> str:
        return refuse_worker_alone() if spec else str(self)


def refuse_worker_alone(*_: Any) -> Any:
    """Of parts of a sum, or of means over own rows, that of one worker says nothing of the others.

    Raises:
        ModelError: Always.
    """
    raise ModelError(_OF_ONE_WORKER)


_OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul"),
    *("neg", "pos", "abs", "round", "lt", "le", "gt", "ge", "float", "int", "index", "bool", "len", "iter", "getitem"),
    "array",
)
for _name in _OPERATORS:
    setattr(OneOfSeveral, f"__{_name}__", refuse_worker_alone)


def _as_tensor(value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
    """Inside of a replica it is that replica's own."""
    del name, as_ref
    if not tf.distribute.has_strategy() or tf.distribute.in_cross_replica_context():
        refuse_worker_alone()
    return tf.convert_to_tensor(value.values[0], dtype)


# Before TensorFlow's own for values of several replicas.
tf.register_tensor_conversion_function(OneOfSeveral, _as_tensor, priority=99)


@contextlib.contextmanager
def naming_lone_results() -> Iterator[None]:
    """Names what a loop of a graph takes for a number that goes on from step to step."""
    try:
        yield
    except TypeError as error:
        if OneOfSeveral.__name__ in str(error):
            refuse_worker_alone()
        raise


def of_lone_replica(value: Any, rows: Any, kind: int) -> Any:
    """What the lone replica of one of several workers has, of how many rows, and its kind; any other as it is."""
    is_own = kind in OF_OWN_ROWS and tf.is_tensor(value)
    return OneOfSeveral([value], [rows], [tf.constant(kind)]) if is_own else value


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
    if kind_of(value) in OF_OWN_ROWS:
        refuse_one_alone()
    if len(own) < 2:
        return
    if not any(map(tf.is_symbolic_tensor, own)) and not all(_are_equal(own[0], each) for each in own[1:]):
        warn_of_one_alone()


def _are_equal(one: Any, other: Any) -> bool:
    return one.shape == other.shape and bool(np.all(one.numpy() == other.numpy()))
