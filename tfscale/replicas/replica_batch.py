"""How does one global batch become the batches of the replicas?

Replica i of N takes the rows from floor(i * n / N) to floor((i + 1) * n / N) of a global batch of n examples, so that
any n can be split, the shares differ by one row at most, and the order of the rows is the order of the replicas.
With L logical replicas its rows are those of the logical ones floor(i * L / N) to floor((i + 1) * L / N), of which each
has its share of the batch as if there were L replicas.
Every worker reads the same global batches and keeps its own rows; all workers therefore reach the end of the
data at the same step, and no collective is needed to find out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.framework.per_replica import naming_lone_results
from tfscale.replicas.batch_rows import leaves_of, plan_rows
from tfscale.replicas.copied_ahead import in_turn_on_gpus, on_gpus
from tfscale.replicas.marks import mark_own
from tfscale.replicas.owners import Fact, PreparedModel

SEVERAL_SIZES = "several sizes"


class ReplicaBatch(NamedTuple):
    """The rows of one replica, and what it must know of the others."""

    data: Any
    """`x`, `(x, y)` or `(x, y, sample_weight)` with this replica's rows, or with a stand-in for none."""
    num_examples: tf.Tensor
    """Rows that count, an int64 scalar; 0 when `data` holds a stand-in."""
    global_examples: tf.Tensor | None
    """Rows of the whole global batch, an int64 scalar; None where the replicas have yet to add up theirs."""
    first_row: tf.Tensor | None
    """Row of the global batch at which this replica's begin, an int64 scalar; None likewise."""
    whole: Any = ()
    """Which leaves of `data` are side inputs, by their places: a dict from `"3"`, say, to `()`, or to a bool scalar
    where only the batch tells. In keys, because those of a structure are all of Python that a dataset hands on. With
    the key `SEVERAL_SIZES` what is whole are rows as well, of which there are fewer."""


class LocalReplicas(NamedTuple):
    """The replicas that live in this process."""

    first: int
    """Global id of the first of them."""
    here: int
    """How many live in this process."""
    total: int
    """Replicas of the whole job."""
    logical: int | None = None
    """Among how many logical replicas a batch is divided, of which each replica runs its own; None for no others."""

    def first_row(self, replica: int, rows: Any) -> Any:
        """Row of a batch of so many at which those of a replica begin; of the replica behind the last, all rows.

        Example:
            >>> three = LocalReplicas(0, 3, 3, logical=8)
            >>> [three.first_row(replica, 24) for replica in range(4)]
            [0, 6, 15, 24]
        """
        parts = self.logical or self.total
        return rows * first_logical(replica, self.total, parts) // parts

    @property
    def ids(self) -> range:
        """Global replica ids, in order."""
        return range(self.first, self.first + self.here)

    @property
    def on_several_workers(self) -> bool:
        """Whether others live in other processes."""
        return self.here < self.total


def first_logical(replica: Any, num_replicas: int, num_logical: int) -> Any:
    """The first of the logical replicas that a replica runs; they follow each other."""
    return replica * num_logical // num_replicas


def logical_counts(num_replicas: int, num_logical: int) -> list[int]:
    """How many of the logical replicas each replica runs.

    Example:
        >>> logical_counts(3, 8)
        [2, 3, 3]
    """
    bounds = [first_logical(replica, num_replicas, num_logical) for replica in range(num_replicas + 1)]
    return [after - first for first, after in itertools.pairwise(bounds)]


# Among how many a model's batches are divided.
LOGICAL_REPLICAS = Fact[int](PreparedModel, "logical_replicas")


def replicas_of(model: keras.Model) -> LocalReplicas:
    """As `local_replicas`, with the division of a prepared model's batches."""
    return local_replicas(model.distribute_strategy)._replace(logical=LOGICAL_REPLICAS.of(model))


def local_replicas(strategy: tf.distribute.Strategy) -> LocalReplicas:
    """Which of the job's replicas live in this process."""
    here = len(strategy.extended.worker_devices)
    return LocalReplicas(worker_rank(strategy) * here, here, int(strategy.num_replicas_in_sync))


def worker_rank(strategy: tf.distribute.Strategy) -> int:
    """Index of this process among the workers of the job, from 0."""
    resolver = strategy.cluster_resolver
    if resolver is None or not resolver.cluster_spec().as_dict():
        return 0
    chiefs = len(resolver.cluster_spec().as_dict().get("chief", []))
    return resolver.task_id + (chiefs if resolver.task_type == "worker" else 0)


def worker_addresses(strategy: tf.distribute.Strategy) -> list[str]:
    """The address of each worker, by rank; "localhost" where there is but one."""
    resolver = strategy.cluster_resolver
    jobs = {} if resolver is None else resolver.cluster_spec().as_dict()
    return [*jobs.get("chief", []), *jobs.get("worker", [])] or ["localhost"]


def split_global_batch(
    data: Any, replicas: LocalReplicas, *, stand_in: bool = True, sizes: Sequence[int | None] | None = None
) -> tuple[ReplicaBatch, ...]:
    """Splits a global batch into the batches of this process's replicas.

    A batch smaller than N leaves replicas without rows. Many kernels cannot compute on none (oneDNN's convolution
    returns a wrong shape, cuDNN's recurrent layers refuse), so such a replica gets one row that does not count.

    Args:
        data: Nested structure of tensors `[batch, ...]` (dense, sparse or ragged), side inputs of another first
            dimension, scalars or optionals; the last three go to every replica as they are.
        replicas: Which replicas to make batches for.
        stand_in: Whether a replica without rows gets one that does not count, or an empty batch.
        sizes: As `plan_rows`.

    Returns:
        One `ReplicaBatch` per local replica.

    Raises:
        DataError: When nothing in `data` has a batch dimension, or it cannot be told what has.
    """
    rows, whole = count_rows(data, sizes)
    return split_rows(data, rows, whole, replicas, stand_in=stand_in)


def split_rows(
    data: Any, rows: Any, whole: Any, replicas: LocalReplicas, *, stand_in: bool = True
) -> tuple[ReplicaBatch, ...]:
    """As `split_global_batch`, when `count_rows` has said how many rows there are, and which leaves are whole."""
    batches = []
    for replica in replicas.ids:
        start, stop = replicas.first_row(replica, rows), replicas.first_row(replica + 1, rows)
        bounds = with_stand_in(start, stop, rows) if stand_in else (start, stop)
        count, total, first = (tf.cast(number, tf.int64) for number in (stop - start, rows, start))
        batches.append(ReplicaBatch(take_rows(data, *bounds, whole), count, total, first, whole))
        mark_rows(batches[-1])
    return tuple(batches)


def count_rows(data: Any, sizes: Sequence[int | None] | None = None) -> tuple[Any, Any]:
    """The rows of a batch, and which of its leaves are side inputs, as `ReplicaBatch.whole`.

    Args:
        data: Of the batch.
        sizes: As `plan_rows`.

    Raises:
        DataError: As `plan_rows`.
    """
    leaves = tf.nest.flatten(data)
    plan = plan_rows(leaves_of(data), sizes)
    rows = num_rows(leaves[plan.reference])
    whole: dict[str, Any] = {str(place): () for place in plan.whole}
    whole |= {str(place): tf.not_equal(tf.cast(num_rows(leaves[place]), tf.int64), rows) for place in plan.open}
    if plan.other_sizes:
        whole |= {str(place): tf.constant(True) for place in plan.other_sizes} | {SEVERAL_SIZES: ()}
    return rows, whole or ()


def own_parts(batch: Any, replicas: LocalReplicas, *, stand_in: bool = True) -> tuple[ReplicaBatch, ...]:
    """The batches of this process's replicas: of a global batch that is to be split, or that was before it was read."""
    if are_parts(batch):
        for part in batch:
            mark_rows(part)
        return batch
    return split_global_batch(batch, replicas, stand_in=stand_in)


def are_parts(batch: Any) -> bool:
    """Whether a batch was split before it was read."""
    return isinstance(batch, tuple) and bool(batch) and all(isinstance(part, ReplicaBatch) for part in batch)


def mark_rows(part: ReplicaBatch) -> None:
    """Says of the tensors of a replica's batch that they are other ones on another replica, but for side inputs."""
    flat = tf.nest.flatten(part.data)
    mark_own([*(flat[place] for place in places_of_rows(part)), part.num_examples, part.first_row])


def places_of_rows(part: ReplicaBatch) -> list[int]:
    """Which leaves of a replica's batch hold its rows; the others are side inputs."""
    leaves = enumerate(tf.nest.flatten(part.data))
    return [place for place, leaf in leaves if has_rows(leaf) and str(place) not in part.whole]


def with_stand_in(start: Any, stop: Any, rows: Any) -> tuple[Any, Any]:
    """At least one row, borrowed from a neighbour where there is none: kernels cannot be trusted with empty batches.

    Args:
        start: First row of a replica or worker; a Python integer or an int64 tensor, as all three.
        stop: The row after its last.
        rows: Of the whole batch, or of those to borrow from.
    """
    if isinstance(rows, int):
        start = min(start, rows - 1)
        return start, max(stop, start + 1)
    start = tf.minimum(start, rows - 1)
    return start, tf.maximum(stop, start + 1)


def of_replica(strategy: tf.distribute.Strategy, values: Any, index: int) -> Any:
    """A structure of what one replica of this process has of values of all replicas; what is one for all stays."""
    kind, local = tf.distribute.DistributedValues, strategy.experimental_local_results
    return tf.nest.map_structure(lambda leaf: local(leaf)[index] if isinstance(leaf, kind) else leaf, values)


def unsplit_batch(data: Any) -> ReplicaBatch:
    """Wraps what a replica gets from a dataset that the user distributed: the global batch is not known here."""
    rows, whole = count_rows(data)
    return ReplicaBatch(data, tf.cast(rows, tf.int64), None, None, whole)


def own_rows(batch: ReplicaBatch) -> Any:
    """Rows of a replica's batch, a stand-in included: a Python integer where that is known while tracing."""
    leaves = enumerate(tf.nest.flatten(batch.data))
    return num_rows(next(leaf for place, leaf in leaves if has_rows(leaf) and str(place) not in batch.whole))


def has_rows(leaf: Any) -> bool:
    """Whether it is a tensor of any kind with a batch dimension."""
    return isinstance(leaf, tf.Tensor | tf.SparseTensor | tf.RaggedTensor) and leaf.shape.rank != 0


def num_rows(leaf: Any) -> Any:
    """Rows of a tensor: a Python integer where the shape says so, which keeps the shapes of the parts static."""
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.nrows()
    if leaf.shape.rank is not None and leaf.shape[0] is not None:
        return leaf.shape[0]
    return tf.shape(leaf, out_type=tf.int64)[0]


def take_rows(data: Any, start: Any, stop: Any, whole: Any = ()) -> Any:
    """Some rows of everything in `data` that has rows; the rest stays as it is, and so does what is in `whole`.

    Args:
        data: Nested structure of tensors.
        start: First row.
        stop: The row after the last.
        whole: As `ReplicaBatch.whole`.
    """
    taken, known = [], dict(whole)
    for place, leaf in enumerate(tf.nest.flatten(data)):
        is_whole = known.get(str(place))
        if is_whole is None:
            taken.append(_take_rows(leaf, start, stop))
        elif isinstance(is_whole, tuple):
            taken.append(leaf)
        else:
            begin, end, rows = (tf.cast(number, tf.int64) for number in (start, stop, num_rows(leaf)))
            taken.append(
                _take_rows(leaf, tf.where(is_whole, tf.zeros_like(begin), begin), tf.where(is_whole, rows, end))
            )
    return tf.nest.pack_sequence_as(data, taken)


def _take_rows(leaf: Any, start: Any, stop: Any) -> Any:
    if not has_rows(leaf):
        return leaf
    if isinstance(leaf, tf.SparseTensor):
        tail = leaf.dense_shape[1:]
        begin = tf.concat([[tf.cast(start, tf.int64)], tf.zeros_like(tail)], axis=0)
        size = tf.concat([[tf.cast(stop - start, tf.int64)], tail], axis=0)
        return tf.sparse.slice(leaf, begin, size)
    return leaf[start:stop]


class CountedPasses:
    """Data whose passes are counted, and may be begun ahead of whoever asks for the next one."""

    num_begun = 0
    """Passes that were begun, used or not."""
    _ahead: Any = None

    def begin_ahead(self) -> Any:
        """Begins the pass that the next `iter` will return."""
        self.forget_ahead()
        self._ahead = iter(self)  # type: ignore[call-overload]
        return self._ahead

    def forget_ahead(self) -> None:
        """Lets the next `iter` begin a pass of its own."""
        self._ahead = None

    def take_ahead(self) -> Any:
        """Returns the pass that was begun ahead, once; else counts one more and returns None."""
        ahead, self._ahead = self._ahead, None
        self.num_begun += ahead is None
        return ahead


class GlobalBatches(CountedPasses, tf.distribute.DistributedDataset):
    """A dataset of global batches, to be split among the replicas of this process.

    On CPUs the step cuts out each replica's rows, which copies nothing. GPUs get theirs ahead of time, and so does
    everybody where there are side inputs: only the specs of the data tell them, not a batch that has come.

    Args:
        dataset: Batched by the global batch; the same on every worker.
        strategy: Whose replicas to feed.
        for_loop: Whether a loop of the user's own takes the batches: each replica's rows and nothing else.
        logical: Among how many logical replicas they are divided; None for no others.
        sizes: As `plan_rows`.
        noting: Given the data, returns them with all that is read noted.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        strategy: tf.distribute.Strategy,
        *,
        for_loop: bool = False,
        logical: int | None = None,
        sizes: Sequence[int | None] | None = None,
        noting: Callable[[tf.data.Dataset], tf.data.Dataset] = lambda read: read,
    ):
        self._sizes = sizes
        self._replicas = local_replicas(strategy)._replace(logical=logical)
        self._for_loop = for_loop
        self._strategy = strategy
        self.global_spec = dataset.element_spec
        self.undistributed = dataset
        """What it was made of, which is what Keras recognises as data."""
        plan = plan_rows(leaves_of(dataset.element_spec), sizes)
        self._has_side_inputs = bool(plan.whole or plan.open or plan.other_sizes)
        self._dataset = noting(dataset).prefetch(tf.data.AUTOTUNE)
        self._first = 0

    def start_at(self, batch: int) -> None:
        """Lets the next pass begin with another batch than the first; those before it are read in vain."""
        self._first = batch

    def leave_out_passes(self, num_passes: int) -> None:
        """Begins passes in vain, so that a seeded `shuffle` gives the next one the order of a later pass."""
        for _ in range(num_passes):
            self.num_begun += 1
            iter(self._dataset)

    @property
    def element_spec(self) -> Any:
        """Spec of a global batch."""
        return self._dataset.element_spec

    def cardinality(self) -> tf.Tensor:
        """Number of global batches, or TF's constants for unknown and infinite."""
        return self._dataset.cardinality()

    def __iter__(self) -> Iterator[Any]:
        """Starts again from the first batch."""
        if (ahead := self.take_ahead()) is not None:
            return ahead
        first, self._first = self._first, 0
        dataset = self._dataset.skip(first) if first else self._dataset
        if self._for_loop:
            return iter(in_turn_on_gpus(dataset.map(self._rows), self._strategy))
        if on_gpus(self._strategy):
            return iter(in_turn_on_gpus(dataset.map(self._split), self._strategy))
        return iter(dataset.map(self._split).prefetch(tf.data.AUTOTUNE) if self._has_side_inputs else dataset)

    def reduce(self, initial_state: Any, reduce_func: Any) -> Any:
        """What `for batch in data:` becomes in a `tf.function`: a loop of TensorFlow, over a pass of its own."""
        with naming_lone_results():
            return in_turn_on_gpus(self._dataset.map(self._rows), self._strategy).reduce(initial_state, reduce_func)

    @tf.autograph.experimental.do_not_convert
    def _rows(self, *element: Any) -> tuple[Any, ...]:
        batch = element if isinstance(self.global_spec, tuple) else element[0]
        return tuple(part.data for part in split_global_batch(batch, self._replicas, stand_in=False))

    @tf.autograph.experimental.do_not_convert
    def _split(self, *element: Any) -> tuple[ReplicaBatch, ...]:
        batch = element if isinstance(self.global_spec, tuple) else element[0]
        return split_global_batch(batch, self._replicas, sizes=self._sizes)
