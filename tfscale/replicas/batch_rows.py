"""Which tensors of a batch hold its rows, and which are the same for every row?

A table, class weights or coordinates that come along with each batch are a side input: one device gives them to the
model whole, and so must every replica. Shapes tell, mostly: where `batch` leaves the number of rows open, what has a
known first dimension is no row. Where they do not, the batch itself does, when it is there; or nothing, and then the
data are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import tensorflow as tf

from tfscale.errors import DataError

_PARTS = ("x", "y", "sample_weight")


class Leaf(NamedTuple):
    """A tensor of a batch, as far as its spec tells."""

    part: str
    """`"x"`, `"y"` or `"sample_weight"`."""
    path: str
    """Where it is, as one would write it."""
    shape: tuple[int | None, ...] | None
    """None where not even the rank is known; `()` for what has no rows, as a scalar."""

    @property
    def rows(self) -> int | None:
        """Its first dimension; None where it is open."""
        return self.shape[0] if self.shape else None

    def __str__(self) -> str:
        return f"{self.path} of shape {self.shape}"


class RowPlan(NamedTuple):
    """What holds the rows, by places in the flat batch."""

    reference: int
    """A leaf that holds the rows."""
    equal: tuple[int, ...] = ()
    """Leaves that must have as many, which only the batch itself can tell."""
    whole: tuple[int, ...] = ()
    """Side inputs."""
    open: tuple[int, ...] = ()
    """Inputs that hold the rows in a batch where they have as many as the reference, and are whole elsewhere."""
    other_sizes: tuple[int, ...] = ()
    """Leaves that hold rows of their own, and another number of them, as unlabelled examples beside labelled ones."""


def plan_rows(leaves: Sequence[Leaf], sizes: Sequence[int | None] | None = None) -> RowPlan:
    """Decides from specs alone what holds the rows of a batch.

    Labels, weights and inputs each hold the rows in one leaf at least. Where all first dimensions are known, the rows
    are the one number that all three have. Where some are open, those that are known are of side inputs, unless a whole
    part is known. Of open inputs beside labels the batch itself tells; without labels they must be equal.

    Args:
        leaves: Of a batch, in the order of `tf.nest.flatten`.
        sizes: Of how many rows the batches are that each comes from, where a pipeline tells; given where a batch may
            hold rows of several sizes.

    Raises:
        DataError: When nothing has rows, or it cannot be told what has.

    Example:
        >>> from tfscale.replicas.batch_rows import Leaf, plan_rows
        >>> plan_rows([Leaf("x", "x['a_table']", (4,)), Leaf("x", "x['rows']", (None, 6)), Leaf("y", "y", (None,))])
        RowPlan(reference=2, equal=(1,), whole=(0,), open=(), other_sizes=())
    """
    parts = {part: [i for i, leaf in enumerate(leaves) if leaf.part == part and leaf.shape != ()] for part in _PARTS}
    present = {part: found for part, found in parts.items() if found}
    if not present:
        raise DataError("A batch must hold at least one tensor with a batch dimension.\nReceived: only scalars.")
    if sizes is not None and (several := _plan_sizes(leaves, sizes, present)) is not None:
        return several
    known = [
        {leaves[i].rows for i in found} for found in present.values() if all(leaves[i].rows is not None for i in found)
    ]
    common = set.intersection(*known) if known else {None}
    if len(common) != 1:
        _refuse(leaves, present)
    (rows,) = common
    whole = tuple(i for found in present.values() for i in found if leaves[i].rows not in (None, rows))
    holding = {part: [i for i in found if i not in whole] for part, found in present.items()}
    inputs, targets = holding.get("x", []), [*holding.get("y", []), *holding.get("sample_weight", [])]
    are_open = bool(targets) and len(inputs) > 1
    open_inputs = tuple(i for i in inputs if leaves[i].rows is None) if are_open else ()
    sure = [i for i in (*targets, *inputs) if i not in open_inputs]
    # A number that is known while tracing keeps the shapes of the parts known.
    reference = next((i for i in sure if leaves[i].rows is not None), sure[0])
    equal = tuple(
        sorted(i for i in sure if i != reference and (leaves[i].rows is None or leaves[reference].rows is None))
    )
    return RowPlan(reference, equal, tuple(sorted(whole)), open_inputs)


def numbers_of_rows(leaves: Sequence[Leaf], sizes: Sequence[int | None]) -> list[int | None]:
    """How many rows each leaf has, by its shape or else by the pipeline; None where neither tells."""
    return [leaf.rows or size for leaf, size in zip(leaves, sizes, strict=True)]


def _plan_sizes(
    leaves: Sequence[Leaf], sizes: Sequence[int | None], present: Mapping[str, Sequence[int]]
) -> RowPlan | None:
    """For a batch whose parts have no number of rows in common: the rows are those of which there are most."""
    known = numbers_of_rows(leaves, sizes)
    numbers = {i: known[i] for found in present.values() for i in found}
    if None in numbers.values():
        return None
    by_part = [{numbers[i] for i in found} for found in present.values()]
    if len(set.intersection(*by_part)) == 1:
        return None
    most = max(number for number in numbers.values() if number is not None)
    reference, *others = [i for i, number in numbers.items() if number == most]
    equal = tuple(i for i in others if leaves[i].rows is None or leaves[reference].rows is None)
    return RowPlan(reference, equal, other_sizes=tuple(i for i, number in numbers.items() if number != most))


def _refuse(leaves: Sequence[Leaf], present: Mapping[str, Sequence[int]]) -> NoReturn:
    shown = [str(leaves[i]) for found in present.values() for i in found if leaves[i].rows is not None]
    raise DataError(
        "Of every batch it must be clear what holds its rows, and what is a side input that replicas get whole.\n"
        f"Received: {', '.join(shown[:6])}{' ...' if len(shown) > 6 else ''}. {WAY_OUT}"
    )


WAY_OUT = (
    "Give inputs, labels and weights one row for each example. A side input is told by its shape: batch without "
    "drop_remainder, so that the number of rows is open, and let the side input's first dimension be known "
    "(tf.ensure_shape); or give it to the model when that is made."
)


def leaves_of(data: Any) -> list[Leaf]:
    """The leaves of a batch, or of its spec, in the order of `tf.nest.flatten`.

    Args:
        data: `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)` of tensors, arrays, specs, or None for nothing.
    """
    flat = tf.nest.flatten(data)
    places = tf.nest.pack_sequence_as(data, list(range(len(flat))))
    if isinstance(places, list | tuple) and 1 <= len(places) <= len(_PARTS):
        named = list(zip(_PARTS, places, strict=False))
    else:
        named = [("x", places)]
    found = {place: (part, path) for part, node in named for place, path in _paths(node, part)}
    return [Leaf(*found[place], _shape(leaf)) for place, leaf in enumerate(flat)]


def _paths(node: Any, path: str) -> Iterator[tuple[int, str]]:
    if isinstance(node, int):
        yield node, path
    elif isinstance(node, Mapping):
        for name in node:
            yield from _paths(node[name], f"{path}[{name!r}]")
    else:
        for index, child in enumerate(node if isinstance(node, list | tuple) else tf.nest.flatten(node)):
            yield from _paths(child, f"{path}[{index}]")


def _shape(leaf: Any) -> tuple[int | None, ...] | None:
    shape = getattr(leaf, "shape", ())
    if isinstance(shape, tf.TensorShape):
        return None if shape.rank is None else tuple(shape)
    return tuple(shape)
