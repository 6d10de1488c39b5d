"""Do training data come in global batches, whose parts have one row for each example?

They are looked at in the pipeline, before a step is made of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.errors import DataError
from tfscale.framework.datasets import groups_by_window, shuffles_batches
from tfscale.replicas.batch_rows import WAY_OUT, Leaf, RowPlan, leaves_of, numbers_of_rows, plan_rows
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_batch import has_rows, num_rows


class ExpectedBatch(NamedTuple):
    """What the batches of training data are to be."""

    rows: int
    """Of a full one."""
    num_batches: int | None = None
    """Per epoch, where the caller knows: whether the first may be the only one."""
    in_any_order: bool = False
    """Whether a smaller one may come at any place, as in a `PyDataset`, whose batches Keras shuffles."""


EXPECTED = Fact[ExpectedBatch](ReplicaGroup, "expected")


def expect_global_batch(strategy: tf.distribute.Strategy, expected: ExpectedBatch) -> None:
    """Requires such batches from the next dataset that `strategy` distributes.

    `fit` distributes its training data first; evaluation data, of any batch size, comes later.
    """
    EXPECTED.set(strategy, expected)


def check_first_batches(data: keras.utils.PyDataset, global_batch: int) -> None:
    """Looks at the first batch of a `PyDataset`, and at the second where that is smaller than the global batch.

    In a pass, where Keras mixes them, it would be found only after a step that the first is not what is left of them.

    Raises:
        DataError: When both are smaller, though there are more than one, or one is larger.
    """
    num_batches = data.num_batches
    found = []
    for index in range(2 if num_batches is None else min(2, num_batches)):
        leaves = leaves_of(data[index])
        if all(leaf.shape == () for leaf in leaves):
            # Lists of numbers, of which Keras makes arrays.
            return
        found.append(leaves[plan_rows(leaves).reference].rows or 0)
        if found[-1] >= global_batch:
            break
    if max(found, default=0) > global_batch or (len(found) > 1 and max(found) < global_batch):
        raise _wrong_batch(max(found), global_batch)


def forget_expected_batch(strategy: tf.distribute.Strategy) -> None:
    """Takes back `expect_global_batch`, if no dataset came."""
    EXPECTED.forget(strategy)


_WRONG_BATCH = "tfscale: the training data are batched by"
_OTHER_ROWS = "tfscale: other rows in"
_SOMETIMES_ROWS = "tfscale: sometimes rows in"


class _Seen(NamedTuple):
    """What a pass has shown so far."""

    largest: tf.Tensor
    """Rows of its largest batch; -1 before the first."""
    held_rows: tuple[tf.Tensor, ...]
    """Of each open input, whether it had the rows of a batch."""
    was_whole: tuple[tf.Tensor, ...]
    """Likewise, whether it had another first dimension."""


def checked_batches(
    dataset: tf.data.Dataset, expected: ExpectedBatch | None, sizes: Sequence[int | None] | None = None
) -> tf.data.Dataset:
    """Fails in the pipeline, before the step, when the parts of a batch do not fit together, or it is of a wrong size.

    With `expected`, full batches are to be of so many rows. The last batch of an epoch may be smaller, and so may the
    only batch of a data set smaller than a batch; where batches come in any order, the first may be what is left; of
    buckets, any.

    Raises:
        DataError: As `plan_rows`.
    """
    leaves = leaves_of(dataset.element_spec)
    plan = plan_rows(leaves, sizes)
    if plan.other_sizes:
        _check_sizes(numbers_of_rows(leaves, sizes or ()), expected)
        expected = None
    may_be_smaller = expected is not None and _may_be_smaller(dataset, expected)
    varies = groups_by_window(dataset)
    global_batch = None if expected is None or leaves[plan.reference].rows == expected.rows else expected.rows
    if global_batch is None and not plan.equal and not plan.open:
        return dataset

    @tf.autograph.experimental.do_not_convert
    def check(seen: _Seen, data: Any) -> tuple[_Seen, Any]:
        counts = [tf.cast(num_rows(leaf), tf.int64) if has_rows(leaf) else 0 for leaf in tf.nest.flatten(data)]
        rows = counts[plan.reference]
        is_first = seen.largest < 0
        largest = tf.maximum(seen.largest, rows)
        seen, assertions = _check_open(seen._replace(largest=largest), plan, leaves, counts)
        for place in plan.equal:
            said = [f"{_OTHER_ROWS} {leaves[place]}", counts[place], f"beside {leaves[plan.reference].path}", rows]
            assertions.append(tf.debugging.Assert(tf.equal(counts[place], rows), said))
        if global_batch is not None:
            may_be = is_first & may_be_smaller
            right = tf.equal(largest, global_batch) | ((may_be | varies) & (largest <= global_batch))
            assertions.append(tf.debugging.Assert(right, [_WRONG_BATCH, largest]))
        with tf.control_dependencies(assertions):
            return tf.nest.map_structure(tf.identity, seen), data

    never = tuple(tf.constant(False) for _ in plan.open)
    before = _Seen(tf.constant(-1, tf.int64), never, never)
    return dataset.scan(before, check)


def _check_sizes(numbers: Sequence[int | None], expected: ExpectedBatch | None) -> None:
    """Of several sizes one, or all of them together, must be the global batch."""
    sizes = {number for number in numbers if number is not None}
    if expected is not None and expected.rows not in {*sizes, sum(sizes)}:
        raise _wrong_batch(max(sizes), expected.rows)


def _check_open(
    seen: _Seen, plan: RowPlan, leaves: Sequence[Leaf], counts: Sequence[tf.Tensor]
) -> tuple[_Seen, list[tf.Operation]]:
    """An open input holds the rows or does not: one that does now and then cannot be told from a side input."""
    if not plan.open:
        return seen, []
    rows = counts[plan.reference]
    fits = [tf.equal(counts[place], rows) for place in plan.open]
    held = tuple(before | now for before, now in zip(seen.held_rows, fits, strict=True))
    whole = tuple(before | ~now for before, now in zip(seen.was_whole, fits, strict=True))
    assertions = [
        tf.debugging.Assert(~(a & b), [f"{_SOMETIMES_ROWS} {leaves[place]}", rows])
        for a, b, place in zip(held, whole, plan.open, strict=True)
    ]
    undecided = {*plan.open, *plan.whole}
    if not any(leaf.part == "x" and leaf.shape != () and i not in undecided for i, leaf in enumerate(leaves)):
        place = plan.open[0]
        said = [f"{_OTHER_ROWS} {leaves[place]}", counts[place], f"beside {leaves[plan.reference].path}", rows]
        assertions.append(tf.debugging.Assert(tf.reduce_any(fits), said))
    return _Seen(seen.largest, held, whole), assertions


def _may_be_smaller(dataset: tf.data.Dataset, expected: ExpectedBatch) -> bool:
    """Whether the first batch of a pass may be: it is the only one, as far as one can know, or comes in any order."""
    cardinality = int(dataset.cardinality())
    is_unknown = cardinality == int(tf.data.UNKNOWN_CARDINALITY)
    may_be_alone = cardinality == 1 or (is_unknown and expected.num_batches in (1, None))
    return may_be_alone or expected.in_any_order or shuffles_batches(dataset)


def wrong_batch_error(error: tf.errors.InvalidArgumentError, global_batch: int | None) -> DataError | None:
    """The house's error for a batch that failed the check, or None for any other error."""
    # TensorFlow writes a quote with a backslash.
    text = str(error).replace("\\", "")
    found = re.search(re.escape(_WRONG_BATCH) + r"\D*(\d+)", text)
    if found is not None:
        return _wrong_batch(int(found[1]), global_batch)
    found = re.search(re.escape(_OTHER_ROWS) + r" (.*?)\] \[(\d+)\] \[beside (.*?)\] \[(\d+)\]", text)
    if found is not None:
        return DataError(
            "All parts of a batch must have one row for each example, but for side inputs.\n"
            f"Received: {found[1]} with {found[2]} rows beside {found[4]} of {found[3]}. {WAY_OUT}"
        )
    found = re.search(re.escape(_SOMETIMES_ROWS) + r" (.*?)\] \[(\d+)\]", text)
    if found is not None:
        return DataError(
            "Of every batch it must be clear what holds its rows, and what is a side input that replicas get whole.\n"
            f"Received: {found[1]}, which has the {found[2]} rows of this batch and not those of another. {WAY_OUT}"
        )
    return None


def _wrong_batch(rows: int, global_batch: int | None) -> DataError:
    how = f"Batch a dataset with .batch({global_batch}), give arrays batch_size={global_batch}"
    if global_batch is not None and rows < global_batch:
        how += f", have what is left over come last (shuffle examples before .batch({global_batch}), not batches)"
    return DataError(
        f"The training data must come in batches of the global batch, {global_batch} examples; "
        "only one may be smaller.\n"
        f"Received: a batch of {rows}. {how}; or make DataParallel with global_batch={rows}, if all are of {rows}."
    )


def uneven_examples_error(error: tf.errors.InvalidArgumentError) -> DataError | None:
    """The house's error for examples that cannot be batched, or None for any other error."""
    found = re.search(
        r"Cannot batch tensors with different shapes in component (\d+).*?(\[[\d,]*\]).*?(\[[\d,]*\])", str(error)
    )
    if found is None:
        return None
    return DataError(
        "All examples of a batch must have the same shapes.\n"
        f"Received: shapes {found[2]} and {found[3]} in component {found[1]} of two of them. Pad them to one length in "
        "`map_fn` with tf.pad, or return tf.RaggedTensor.from_tensor(values[tf.newaxis])[0] for a ragged batch."
    )
