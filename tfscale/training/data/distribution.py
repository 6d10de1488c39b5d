"""What becomes of a dataset that is given to a prepared model?

`strategy.experimental_distribute_dataset` is where Keras hands over its data. It splits any batch to the row, checks
that training data come in global batches, and recognises what `DataParallel.dataset` made.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import tensorflow as tf

from tfscale.errors import DataError
from tfscale.training import _tf_private
from tfscale.training.data.dataset import OwnBatches, find_global_dataset
from tfscale.training.inputs import GlobalBatches, has_rows, local_replicas, num_rows


def distribute_global_batches(strategy: tf.distribute.Strategy) -> None:
    """Makes `strategy.experimental_distribute_dataset` split batches to the row, any size, on any number of workers.

    TF's own rebatches by shape, lets the last replicas run dry, and on several workers asks at every step, with a
    collective, whether any worker still has data.
    """
    # Every replica gets a batch at every step, empty ones included, so nothing needs to be asked.
    strategy.extended.experimental_enable_get_next_as_optional = False

    def distribute(dataset: Any, options: Any = None) -> tf.distribute.DistributedDataset:
        del options
        if isinstance(dataset, tf.distribute.DistributedDataset):
            return dataset
        # Taken by whatever comes first, which is the training data; what is left would be for evaluation data.
        expected = _EXPECTED.pop(strategy, None)
        own = find_global_dataset(dataset)
        if own is not None:
            return OwnBatches(own, strategy)
        _warn_of_own_orders(dataset, strategy)
        return GlobalBatches(_checked(dataset, *expected) if expected else dataset, strategy)

    strategy.experimental_distribute_dataset = distribute


def _warn_of_own_orders(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy) -> None:
    replicas = local_replicas(strategy)
    if replicas.here < replicas.total and _tf_private.has_unseeded_shuffle(dataset):
        warnings.warn(
            "The data are shuffled without a seed: every worker draws an order of its own, and trains on its rows of "
            "that, so that examples are repeated and lost. Give the source to `dp.dataset(..., shuffle=True)`, or "
            "`shuffle` a seed.",
            stacklevel=2,
        )


_EXPECTED: dict[tf.distribute.Strategy, tuple[int, int | None]] = {}


def expect_global_batch(strategy: tf.distribute.Strategy, global_batch: int, num_batches: int | None) -> None:
    """Requires full batches of `global_batch` rows from the next dataset that `strategy` distributes.

    `fit` distributes its training data first; evaluation data, of any batch size, comes later. `num_batches` per
    epoch, where the caller knows, tells whether the first may be the only one.
    """
    _EXPECTED[strategy] = global_batch, num_batches


def forget_expected_batch(strategy: tf.distribute.Strategy) -> None:
    """Takes back `expect_global_batch`, if no dataset came."""
    _EXPECTED.pop(strategy, None)


def dataset_spec(dataset: Any) -> Any:
    """Specs of one global batch of a distributed dataset; None where a part of the batch is missing."""
    spec = (
        dataset.global_spec
        if isinstance(dataset, GlobalBatches | OwnBatches)
        else _tf_private.one_replica_spec(dataset)
    )
    return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, tf.OptionalSpec) else leaf, spec)


_WRONG_BATCH = "tfscale: the training data are batched by"


def _checked(dataset: tf.data.Dataset, global_batch: int, num_batches: int | None) -> tf.data.Dataset:
    """Fails in the pipeline, before the step, when full batches are not `global_batch` rows.

    The last batch of an epoch may be smaller, and so may the only batch of a data set smaller than a batch.
    """
    if _is_static(dataset, global_batch):
        return dataset
    cardinality = int(dataset.cardinality())
    may_be_alone = cardinality == 1 or (cardinality == int(tf.data.UNKNOWN_CARDINALITY) and num_batches in (1, None))

    def check(first: tf.Tensor, *element: Any) -> tuple[tf.Tensor, Any]:
        data = element if isinstance(dataset.element_spec, tuple) else element[0]
        rows = tf.cast(num_rows(next(leaf for leaf in tf.nest.flatten(data) if has_rows(leaf))), tf.int64)
        is_first = first < 0
        first = tf.where(is_first, rows, first)
        full = tf.equal(first, global_batch) | (is_first & may_be_alone)
        assertion = tf.debugging.Assert(full & (rows <= global_batch), [_WRONG_BATCH, tf.maximum(rows, first)])
        with tf.control_dependencies([assertion]):
            return tf.identity(first), data

    return dataset.scan(tf.constant(-1, tf.int64), lambda first, element: check(first, *_as_arguments(element)))


def _is_static(dataset: tf.data.Dataset, global_batch: int) -> bool:
    """Whether the shapes alone say that every batch is full, as after `batch(..., drop_remainder=True)`."""
    leaves = [leaf for leaf in tf.nest.flatten(dataset.element_spec) if isinstance(leaf, tf.TensorSpec)]
    return bool(leaves) and bool(leaves[0].shape.rank) and leaves[0].shape[0] == global_batch


def _as_arguments(element: Any) -> tuple[Any, ...]:
    return element if isinstance(element, tuple) else (element,)


def wrong_batch_error(error: tf.errors.InvalidArgumentError, global_batch: int | None) -> DataError | None:
    """The house's error for a batch that failed the check, or None for any other error."""
    found = re.search(re.escape(_WRONG_BATCH) + r"\D*(\d+)", str(error))
    if found is None:
        return None
    return DataError(
        f"The training data must come in batches of the global batch, {global_batch} examples.\n"
        f"Received: a batch of {found[1]}. Batch a dataset with .batch({global_batch}), give arrays "
        f"batch_size={global_batch}, or make DataParallel with global_batch={found[1]}."
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
