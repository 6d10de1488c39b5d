"""On which other rows may a step do what it does not do with those of the first batch?

Rows of one class or session that should agree, rows of two that should lie apart, a share of another row that is mixed
in: where the first batch has no two rows of a kind, or one kind alone, or a share of zero, none of that shows in its
numbers. So the step is also compared on rows that differ from the batch's in this.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfscale.training.check.check_rows import CheckRows
from tfscale.training.check.extremes import far_apart


class Kinds(NamedTuple):
    """How rows are told apart by whole numbers."""

    number: int
    """1 for rows that are all like the first, 2 for one row beside others that are alike; of more, all take turns."""
    near: float = 1.0
    """Of numbers of floating point: how much is left of how far each row lies from the mean of all ..."""
    size: float = 1.0
    """... or of the numbers themselves. Margins end somewhere, and a term may be nothing beside another."""
    where: str = "everywhere"
    """What is changed: "inputs" alone, or of what holds whole numbers, every other: "even" or "odd" ones."""

    def places(self, rows: CheckRows) -> tuple[int, ...]:
        """Places of the leaves that are changed."""
        leaves = tf.nest.flatten(rows.whole)
        num_inputs = len(tf.nest.flatten(rows.whole[0])) if isinstance(rows.whole, tuple) else len(leaves)
        if self.where == "everywhere":
            return tuple(range(len(leaves)))
        if self.where == "inputs":
            return tuple(range(num_inputs)) if num_inputs < len(leaves) else ()
        whole = [place for place, leaf in enumerate(leaves) if _is_whole(leaf)]
        return tuple(whole[self.where == "odd" :: 2]) if len(whole) > 1 else ()


KINDS = (
    Kinds(1, near=0.1),
    Kinds(3, size=0.01),
    Kinds(2, size=0.01),
    Kinds(2),
    Kinds(10),
    # The same session and another class, the same user and another item.
    Kinds(1, near=0.1, where="inputs"),
    Kinds(1, where="even"),
    Kinds(1, where="odd"),
)


def other_rows(function: Any, rows: CheckRows) -> Iterator[CheckRows]:
    """Rows that are to each other what those of a later batch may be.

    Args:
        function: The traced step of one replica, or None where it is run eagerly.
        rows: On which it was traced.
    """
    yield from far_apart(function, rows)
    if rows.have_several_sizes:
        return
    for kinds in KINDS:
        if places := kinds.places(rows):
            yield rows.changed(places, functools.partial(changed_rows, kinds=kinds))


def _is_whole(leaf: Any) -> bool:
    """Whether a tensor holds nothing but whole numbers, or texts: what rows may be told apart by."""
    if not isinstance(leaf, tf.Tensor):
        return False
    return not leaf.dtype.is_floating or bool(tf.reduce_all(leaf == tf.round(leaf)))


def changed_rows(leaf: Any, kinds: Kinds) -> Any:
    """The rows of one tensor as they may be beside each other.

    Args:
        leaf: A tensor, dense, ragged or sparse.
        kinds: How they are told apart.
    """
    if isinstance(leaf, tf.RaggedTensor):
        return _of_other_lengths(leaf, kinds)
    if not isinstance(leaf, tf.Tensor):
        return leaf
    if kinds.number == 1 and not leaf.dtype.is_floating:
        return tf.repeat(leaf[:1], len(leaf), axis=0)
    if leaf.dtype == tf.string or leaf.dtype.is_complex:
        return leaf
    numbers = leaf.numpy()
    if leaf.dtype.is_floating and leaf.dtype.size < 4:
        numbers = numbers.astype(np.float32)
    return tf.cast(_changed(numbers, kinds, is_whole=_is_whole(leaf)), leaf.dtype)


def _changed(numbers: np.ndarray, kinds: Kinds, *, is_whole: bool) -> np.ndarray:
    # A time or a price of each row may be the same, too.
    is_key = kinds.number == 1 and kinds.near < 1 and numbers[0].size == 1
    if not (is_whole or is_key):
        mean = numbers.mean(axis=0) if kinds.near < 1 else np.zeros_like(numbers[0])
        return mean + np.asarray(kinds.near * kinds.size, numbers.dtype) * (numbers - mean)
    if kinds.number == 1:
        return np.repeat(numbers[:1], len(numbers), axis=0)
    if numbers.dtype.kind == "f" and np.all(numbers == numbers[:1]):
        # A flag, a share or a weight that is the same for all rows so far.
        shares = (1 + np.arange(len(numbers))) / (1 + len(numbers))
        return np.broadcast_to(_along_rows(shares, numbers), numbers.shape)
    return _of_kinds(numbers, kinds.number)


def _of_kinds(numbers: np.ndarray, count: int) -> np.ndarray:
    """Whole numbers of rows: those that there are, or indices from 0; many in a row stay, in another order."""
    rows = np.arange(len(numbers))
    kinds = (rows == 0).astype(rows.dtype) if count == 2 else rows % count
    if numbers[0].size == 1:
        _, first = np.unique(numbers, return_index=True)
        values = numbers.reshape(-1)[np.sort(first)] if len(first) >= count else np.arange(count)
        return np.broadcast_to(_along_rows(values[kinds], numbers), numbers.shape)
    length = numbers.shape[-1]
    turned = np.stack([np.roll(row, kind, axis=-1) for row, kind in zip(numbers, kinds, strict=True)])
    # As of rows that are filled up.
    is_short = _along_rows(kinds == count - 1, numbers) & (np.arange(length) > length // 2)
    return np.where(is_short, np.zeros_like(turned), turned)


def _along_rows(values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return values.reshape(-1, *[1] * (numbers.ndim - 1))


def _of_other_lengths(leaf: tf.RaggedTensor, kinds: Kinds) -> tf.RaggedTensor:
    """Every row as it is, or all but the first cut off behind their first item."""
    if kinds.number == 1:
        return leaf
    return tf.concat([leaf[:1], leaf[1:, :1]], axis=0)
