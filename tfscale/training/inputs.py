"""How does one global batch become the batches of the replicas?

Replica i of N takes the rows from floor(i * n / N) to floor((i + 1) * n / N) of a global batch of n examples, so that
any n can be split, the shares differ by one row at most, and the order of the rows is the order of the replicas.
Every worker reads the same global batches and keeps its own rows; all workers therefore reach the end of the
data at the same step, and no collective is needed to find out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.errors import DataError
from tfscale.training import _tf_private


class ReplicaBatch(NamedTuple):
    """The rows of one replica, and what it must know of the others."""

    data: Any
    """`x`, `(x, y)` or `(x, y, sample_weight)` with this replica's rows, or with a stand-in for none."""
    num_examples: tf.Tensor
    """Rows that count, an int64 scalar; 0 when `data` holds a stand-in."""
    global_examples: tf.Tensor | None
    """Rows of the whole global batch, an int64 scalar; None where the replicas have yet to add up theirs."""


class LocalReplicas(NamedTuple):
    """The replicas that live in this process."""

    first: int
    """Global id of the first of them."""
    here: int
    """How many live in this process."""
    total: int
    """Replicas of the whole job."""

    @property
    def ids(self) -> range:
        """Global replica ids, in order."""
        return range(self.first, self.first + self.here)


def local_replicas(strategy: tf.distribute.Strategy) -> LocalReplicas:
    """Which of the job's replicas live in this process."""
    here = len(strategy.extended.worker_devices)
    return LocalReplicas(worker_rank(strategy) * here, here, strategy.num_replicas_in_sync)


def worker_rank(strategy: tf.distribute.Strategy) -> int:
    """Index of this process among the workers of the job, from 0."""
    resolver = strategy.cluster_resolver
    if resolver is None or not resolver.cluster_spec().as_dict():
        return 0
    chiefs = len(resolver.cluster_spec().as_dict().get("chief", []))
    return resolver.task_id + (chiefs if resolver.task_type == "worker" else 0)


def split_global_batch(data: Any, replicas: LocalReplicas, *, stand_in: bool = True) -> tuple[ReplicaBatch, ...]:
    """Splits a global batch into the batches of this process's replicas.

    A batch smaller than N leaves replicas without rows. Many kernels cannot compute on none (oneDNN's convolution
    returns a wrong shape, cuDNN's recurrent layers refuse), so such a replica gets one row that does not count.

    Args:
        data: Nested structure of tensors `[batch, ...]` (dense, sparse or ragged), scalars or optionals; the last
            two go to every replica as they are.
        replicas: Which replicas to make batches for.
        stand_in: Whether a replica without rows gets one that does not count, or an empty batch.

    Returns:
        One `ReplicaBatch` per local replica.

    Raises:
        DataError: When nothing in `data` has a batch dimension.
    """
    leaves = [leaf for leaf in tf.nest.flatten(data) if _has_rows(leaf)]
    if not leaves:
        raise DataError("A batch must hold at least one tensor with a batch dimension.\nReceived: only scalars.")
    rows = _num_rows(leaves[0])
    batches = []
    for replica in replicas.ids:
        start, stop = rows * replica // replicas.total, rows * (replica + 1) // replicas.total
        bounds = _with_stand_in(start, stop, rows) if stand_in else (start, stop)
        part = tf.nest.map_structure(functools.partial(_take_rows, start=bounds[0], stop=bounds[1]), data)
        batches.append(ReplicaBatch(part, tf.cast(stop - start, tf.int64), tf.cast(rows, tf.int64)))
    return tuple(batches)


def _with_stand_in(start: Any, stop: Any, rows: Any) -> tuple[Any, Any]:
    """At least one row, borrowed from a neighbour where the replica has none of its own."""
    if isinstance(rows, int):
        start = min(start, rows - 1)
        return start, max(stop, start + 1)
    start = tf.minimum(start, rows - 1)
    return start, tf.maximum(stop, start + 1)


def unsplit_batch(data: Any) -> ReplicaBatch:
    """Wraps what a replica gets from a dataset that the user distributed: the global batch is not known here."""
    rows = _num_rows(next(leaf for leaf in tf.nest.flatten(data) if _has_rows(leaf)))
    return ReplicaBatch(data, tf.cast(rows, tf.int64), None)


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, tf.Tensor | tf.SparseTensor | tf.RaggedTensor) and leaf.shape.rank != 0


def _num_rows(leaf: Any) -> Any:
    """A Python integer where the shape says so, which keeps the shapes of the parts static."""
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.nrows()
    if leaf.shape.rank is not None and leaf.shape[0] is not None:
        return leaf.shape[0]
    return tf.shape(leaf, out_type=tf.int64)[0]


def _take_rows(leaf: Any, start: Any, stop: Any) -> Any:
    if not _has_rows(leaf):
        return leaf
    if isinstance(leaf, tf.SparseTensor):
        tail = leaf.dense_shape[1:]
        begin = tf.concat([[tf.cast(start, tf.int64)], tf.zeros_like(tail)], axis=0)
        size = tf.concat([[tf.cast(stop - start, tf.int64)], tail], axis=0)
        return tf.sparse.slice(leaf, begin, size)
    return leaf[start:stop]


class GlobalBatches(tf.distribute.DistributedDataset):
    """A dataset of global batches, to be split among the replicas of this process.

    On CPUs the step cuts out each replica's rows, which copies nothing. GPUs get theirs ahead of time.

    Args:
        dataset: Batched by the global batch; the same on every worker.
        strategy: Whose replicas to feed.
    """

    def __init__(self, dataset: tf.data.Dataset, strategy: tf.distribute.Strategy):
        self._replicas = local_replicas(strategy)
        self._strategy = strategy
        self.global_spec = dataset.element_spec
        self._dataset = dataset.prefetch(tf.data.AUTOTUNE)

    @property
    def element_spec(self) -> Any:
        """Spec of a global batch."""
        return self._dataset.element_spec

    def cardinality(self) -> tf.Tensor:
        """Number of global batches, or TF's constants for unknown and infinite."""
        return self._dataset.cardinality()

    def __iter__(self) -> Iterator[Any]:
        """Starts again from the first batch."""
        if on_gpus(self._strategy):
            return iter(self._strategy.distribute_datasets_from_function(lambda _: self._one_replica_after_another()))
        return iter(self._dataset)

    def _one_replica_after_another(self) -> tf.data.Dataset:
        """The same batches one by one, so that TF copies each ahead of time to its own GPU."""

        def in_turn(*element: Any) -> tf.data.Dataset:
            batch = element if isinstance(self.global_spec, tuple) else element[0]
            datasets = [tf.data.Dataset.from_tensors(part) for part in split_global_batch(batch, self._replicas)]
            return functools.reduce(tf.data.Dataset.concatenate, datasets)

        return self._dataset.flat_map(in_turn)


def on_gpus(strategy: tf.distribute.Strategy) -> bool:
    """Whether the replicas of this process are GPUs, which want their input copied ahead of time."""
    return all("GPU" in device for device in strategy.extended.worker_devices)


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
        expected = _EXPECTED.pop(strategy, None)
        return GlobalBatches(_checked(dataset, *expected) if expected else dataset, strategy)

    strategy.experimental_distribute_dataset = distribute


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
    spec = dataset.global_spec if isinstance(dataset, GlobalBatches) else _tf_private.one_replica_spec(dataset)
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
        rows = tf.cast(_num_rows(next(leaf for leaf in tf.nest.flatten(data) if _has_rows(leaf))), tf.int64)
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


def wrong_batch_error(error: tf.errors.InvalidArgumentError, global_batch: int) -> DataError | None:
    """The house's error for a batch that failed the check, or None for any other error."""
    found = re.search(re.escape(_WRONG_BATCH) + r"\D*(\d+)", str(error))
    if found is None:
        return None
    return DataError(
        f"The training data must come in batches of the global batch, {global_batch} examples.\n"
        f"Received: a batch of {found[1]}. Batch the dataset with .batch({global_batch}), or make DataParallel with "
        f"global_batch={found[1]}."
    )
