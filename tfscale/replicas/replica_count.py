"""How many replicas are there, to a script that divides what it computes by their number?

A script written for `tf.distribute` asks its strategy, and divides the mean over a replica's rows by the answer: losses
are parts of a sum. That is exact where all replicas have as many rows. Three things are done about the rest:

- In a step of a prepared model there is one replica, whenever the number was asked for.
- In a function of `strategy.run`, what is divided by the number becomes replica i's part n_i / n of the sum.
- A loss of Keras's that is called under the scope, and by no replica, is one of all rows: it is told of one as well.

To Python it is the whole number that it was.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.framework.conversions import becomes_whole
from tfscale.framework.losses import is_asked_by_loss
from tfscale.replicas.count_notes import no_plain_number, note_count, note_part, note_times, noting_counts
from tfscale.replicas.own_functions import traced_with_step
from tfscale.replicas.share import is_in_step
from tfscale.step_context import Slot


class LoopRows(NamedTuple):
    """What a replica holds of the batch that a loop by hand gave to `strategy.run`."""

    own: Any
    """n_i, an integer or an integer tensor."""
    total: Callable[[], Any]
    """Returns n, likewise."""
    are_several: bool = False
    """Whether it was given several batches, and has another number of each; the first one's is told."""

    def part(self, dtype: tf.DType) -> tf.Tensor:
        """n_i / n."""
        return tf.cast(tf.cast(self.own, tf.float64) / tf.cast(self.total(), tf.float64), dtype)

    def count(self, dtype: tf.DType) -> tf.Tensor:
        """The number of replicas, n / n_i; of one without rows as if it had one, so that a sum of none stays zero."""
        own = tf.maximum(tf.cast(self.own, tf.float64), 1.0)
        return tf.cast(tf.cast(self.total(), tf.float64) / own, dtype)

    def as_numbers(self) -> tuple[int, int]:
        """Those of an eager step."""
        return int(self.own), int(self.total())


_ROWS = Slot[LoopRows | None]("rows_of_loop")
_ASKS = Slot[list[int] | None]("asks_for_replicas")
_PLAIN = Slot[list[str] | None]("numbers_taken_for_plain_ones")
# What TensorFlow says of something in a list that is neither a number nor a tensor, or that is no operand.
_UNCONVERTED = ("NOT CONVERTIBLE TO TENSOR", "_CountInLoop", "of type 'ReplicaCount'")


@contextlib.contextmanager
def in_loop(rows: LoopRows | None) -> Iterator[None]:
    """Says what this thread's replica holds, while it runs a function of a loop by hand."""
    traced = contextlib.nullcontext() if rows is None else traced_with_step(rows.as_numbers)
    with _ROWS.carrying(rows), traced:
        try:
            with noting_counts():
                yield
        except (TypeError, ValueError) as error:
            said = str(error)
            if isinstance(error, ModelError) or not any(each in said for each in _UNCONVERTED):
                raise
            # TensorFlow says of what class it was, and not what to do.
            raise no_plain_number(int(tf.distribute.get_strategy().num_replicas_in_sync)) from error


@contextlib.contextmanager
def noting_asks() -> Iterator[list[int]]:
    """Gives a list that gets an entry whenever somebody asks meanwhile how many replicas there are."""
    asks: list[int] = []
    with _ASKS.carrying(asks):
        yield asks


@contextlib.contextmanager
def noting_plain_numbers() -> Iterator[list[str]]:
    """Gives a list of what operations that are traced meanwhile ask of the number of replicas, and eager ones do not.

    Eagerly, TensorFlow's own operations take an `int` or `float` for what it is (2.21); traced, they ask its class.
    """
    plain: list[str] = []
    with _PLAIN.carrying(plain):
        yield plain


def is_in_loop() -> bool:
    """Whether this thread's replica runs a function of a loop by hand."""
    return _ROWS.value is not None and not is_in_step()


def own_rows() -> Any:
    """n_i of the loop by hand that this thread's replica runs, an integer or an integer tensor; None elsewhere."""
    rows = _ROWS.value
    return None if rows is None or is_in_step() else rows.own


def has_several_own_rows() -> bool:
    """Whether that replica has batches of several sizes, so that a number is not told from the size of one of them."""
    rows = _ROWS.value
    return rows is not None and rows.are_several


def current_part() -> Callable[[tf.DType], tf.Tensor] | None:
    """Returns n_i / n of the loop by hand that this thread's replica runs; None where that is not known."""
    rows = _ROWS.value
    return None if rows is None or is_in_step() else rows.part


def part_asked_for() -> Callable[[tf.DType], tf.Tensor] | None:
    """As `current_part`, noted as if the script itself had asked how many replicas there are."""
    if (asks := _ASKS.value) is not None:
        asks.append(1)
    return current_part()


def told(count: int) -> Any:
    """What a script is told that asks a strategy of `count` replicas how many there are."""
    if (asks := _ASKS.value) is not None:
        asks.append(count)
    if count == 1 or is_in_step():
        return 1
    rows = _ROWS.value
    if rows is not None:
        return _CountInLoop(count, rows)
    # Of all rows: no replica has a part of it.
    is_of_all = tf.distribute.in_cross_replica_context() and is_asked_by_loss()
    return 1 if is_of_all else ReplicaCount(count)


def _counts_now(count: int) -> Any:
    """`count`, as it counts where this thread is now."""
    return int(count) if (now := told(int(count))).__class__ is ReplicaCount else now


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class ReplicaCount(int):
    """The number of replicas: an integer, but for what it divides in a step or in a function of `strategy.run`."""

    dtype = "int32"
    """Keras takes no class of its own for a kind of numbers."""

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        _note_plain(self, dtype, name)
        return _tensor(_counts_now(self), dtype, name)

    def __float__(self) -> float:
        return float(_counts_now(int(self)))

    def __rtruediv__(self, other: Any) -> Any:
        return ReplicaPart(other, int(self)) if _is_number(other) else _divided(other, _counts_now(self))

    def __mul__(self, other: Any) -> Any:
        return int(self) * other if _is_number(other) else _multiplied(other, _counts_now(self))

    __rmul__ = __mul__

    def __reduce__(self) -> Any:
        # In a file, or on another machine, it is a number.
        return int, (int(self),)


def _note_plain(number: float, dtype: Any, name: Any) -> None:
    # Only an operation says both for which argument it is and of which type it has to be.
    if (plain := _PLAIN.value) is not None and dtype is not None and name is not None:
        plain.append(f"{number:g}")


class ReplicaPart(float):
    """A number that was divided by the number of replicas."""

    dtype = "float32"

    def __new__(cls, numerator: float, count: int) -> ReplicaPart:
        """By what `numerator` is divided, is told when it is used."""
        part = super().__new__(cls, numerator / count)
        part._given = numerator, count
        return part

    _given: tuple[float, int]

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        _note_plain(self, dtype, name)
        numerator, count = self._given
        dtype = tf.as_dtype(dtype or tf.float32)
        return _divided(tf.constant(numerator, dtype, name=name), _counts_now(count))

    def __mul__(self, other: Any) -> Any:
        if _is_number(other):
            return float(self) * other
        numerator, count = self._given
        return _divided(other * numerator, _counts_now(count))

    __rmul__ = __mul__

    def __reduce__(self) -> Any:
        return float, (float(self),)


@functools.total_ordering
class _CountInLoop:
    """As `ReplicaCount`, asked for where it counts. No Python number, which TensorFlow takes without asking."""

    dtype = "int32"

    def __init__(self, count: int, rows: LoopRows):
        self._count = count
        self.rows = rows

    def __index__(self) -> int:
        return self._count

    def __float__(self) -> float:
        # Whoever asks for it divides by it.
        raise no_plain_number(self._count)

    def __repr__(self) -> str:
        return str(self._count)

    def __hash__(self) -> int:
        return hash(self._count)

    def __eq__(self, other: Any) -> bool:
        return bool(self._count == other)

    def __lt__(self, other: Any) -> bool:
        return bool(self._count < other)

    __array_ufunc__ = None
    """numpy leaves to it what is computed of it."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise no_plain_number(self._count)

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        if name == "y" or (dtype is not None and not tf.as_dtype(dtype).is_floating) or becomes_whole():
            # It is this object's turn, then: the part of a replica is no whole number, and may be of no rows.
            raise no_plain_number(self._count)
        return note_count(self.rows.count(tf.as_dtype(dtype or tf.float32)))

    def __rtruediv__(self, other: Any) -> Any:
        return ReplicaPart(other, self._count) if _is_number(other) else _divided(other, self)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int) and other == self.rows.own:
            return self.rows.total()
        return self._count * other if _is_number(other) else _multiplied(other, self)

    __rmul__ = __mul__


def _as_integer(name: str, *, reflected: bool = False) -> Callable[..., Any]:
    function = getattr(operator, name)

    def computed(self: _CountInLoop, other: Any) -> Any:
        if tf.is_tensor(other):
            raise no_plain_number(self._count)
        return function(other, self._count) if reflected else function(self._count, other)

    return computed


for _name in ("add", "sub", "floordiv", "mod", "pow", "truediv"):
    setattr(_CountInLoop, f"__{_name}__", _as_integer(_name))
    if _name != "truediv":
        setattr(_CountInLoop, f"__r{_name}__", _as_integer(_name, reflected=True))


def _tensor(now: Any, dtype: Any, name: Any) -> tf.Tensor:
    if isinstance(now, _CountInLoop):
        return now.__tf_tensor__(dtype, name)
    return tf.constant(now, tf.as_dtype(dtype or tf.int32), name=name)


def _divided(value: Any, now: Any) -> Any:
    """A replica's number over the number of replicas: its part of what one device computes."""
    if not isinstance(now, _CountInLoop):
        return value / now
    value = tf.convert_to_tensor(value)
    value = value if value.dtype.is_floating else tf.cast(value, tf.float32)
    part = tf.math.multiply_no_nan(value, now.rows.part(value.dtype))
    note_part(value, part)
    return part


def _multiplied(value: Any, now: Any) -> Any:
    if not isinstance(now, _CountInLoop):
        return value * now
    value = tf.convert_to_tensor(value)
    if value.dtype.is_floating:
        count = now.rows.count(value.dtype)
        note_times(count)
        product = value * count
        return product if tf.get_static_value(value) is None else note_count(product)
    # The rows of a replica, times the number of replicas, are those of the batch.
    is_rows = tf.equal(value, tf.cast(now.rows.own, value.dtype))
    return tf.where(is_rows, tf.cast(now.rows.total(), value.dtype), value * int(now))
