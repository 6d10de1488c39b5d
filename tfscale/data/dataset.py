"""The dataset of a job: the same global batches on any number of replicas, each worker doing only its share."""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.data.balance import propose_loads
from tfscale.data.file_pipeline import FilePipeline
from tfscale.data.files import RecordFiles, divide_files
from tfscale.data.mapping import ExampleMap
from tfscale.data.pipeline import Pipeline
from tfscale.data.rows import EpochRows, replica_loads
from tfscale.data.same_data import agree
from tfscale.data.source import DEFAULT_BUFFER, ArraySource, StreamSource, make_files, make_source
from tfscale.errors import BatchError, DataError
from tfscale.replicas.copied_ahead import in_turn_on_gpus, on_gpus
from tfscale.replicas.replica_batch import CountedPasses, local_replicas, logical_counts


class GlobalDataset:
    """Global batches of examples, in the same order on any number of replicas; `DataParallel.dataset` makes it.

    `fit`, `evaluate` and `predict` of a prepared model take it. Of every global batch a worker reads and maps the rows
    of its own replicas only (one more where it has none: a last batch with fewer rows than replicas). Each pass over it
    is an epoch, with an order of its own when it is shuffled. Iterating it yields whole global batches.

    Args:
        source: Nested structure of arrays (`numpy.memmap` too), an unbatched `tf.data.Dataset`, a TFDS builder, a
            `PyDataset`, or `RecordFiles`.
        strategy: Whose replicas it feeds.
        global_batch: Examples of a step.
        map_fn: From one example to what the model takes; with a second argument it also gets a seed, an int32 tensor
            `[2]` for TensorFlow's stateless random functions, which depends on seed, epoch and example alone. An
            example that is a tuple comes as one tuple.
        shuffle: Whether to mix the examples anew for each epoch: arrays as a whole, streams through a buffer of 10 000,
            or of as many as are given in the place of True.
        drop_remainder: Whether to leave out a last batch that is smaller.
        cache: True keeps a stream in memory once it was read, before `map_fn`; `"mapped"` keeps what `map_fn` made of
            each example on the worker that made it, for a `map_fn` without a seed.
        worker_load: Shares of the work, one number per worker or per replica; None for equal ones. `"auto"` lets the
            first `fit` measure how fast each worker is. The result is the same for any.
        sharding: `"exact"`, or `"files"` for `RecordFiles` and TFDS builders: every worker reads whole files of its
            own and nothing else, which costs least. Batches are full and every example comes once per epoch, but which
            examples meet in a batch then depends on the number of workers.
        seed: Of the orders and of `map_fn`, less than 2^63; None has the chief draw one. All workers use the chief's.
        logical_replicas: Among how many a batch is divided, of which each replica takes its own; None for no others.

    Raises:
        DataError: When the source is none of these, is empty, batched, or of unknown length, or an argument is none of
            the above.
        BatchError: When the loads leave a replica without a row of a full batch.
    """

    def __init__(
        self,
        source: Any,
        *,
        strategy: tf.distribute.Strategy,
        global_batch: int,
        map_fn: Callable[..., Any] | None = None,
        shuffle: bool | int = False,
        drop_remainder: bool = False,
        cache: bool | str = False,
        worker_load: Sequence[float] | str | None = None,
        sharding: str = "exact",
        seed: int | None = None,
        logical_replicas: int | None = None,
    ):
        logical = {"logical_replicas": logical_replicas}
        _check_choices(sharding=sharding, cache=cache, worker_load=worker_load, seed=seed, **logical)
        self._strategy = strategy
        self.logical_replicas = logical_replicas
        self._source = make_files(source) if sharding == "files" else make_source(source)
        replicas = local_replicas(strategy)
        self._num_workers = replicas.total // replicas.here
        if self._num_workers > 1 and isinstance(self._source, StreamSource):
            self._source = self._source.in_one_order()
        if cache is True and isinstance(self._source, StreamSource):
            self._source = self._source.cached()
        self._keeps_examples = cache is True
        self._example_map = ExampleMap(map_fn, keep=cache == "mapped")
        self._seed = seed
        self._buffer = DEFAULT_BUFFER if shuffle is True else _check_buffer(shuffle)
        # Of training, which all workers do together, and of a script that looks at the batches on one of them.
        self._position, self._own_position = _Position(), _Position()
        self._is_unmeasured = isinstance(worker_load, str)
        loads = self._loads(None if isinstance(worker_load, str) else worker_load)
        self._rows = EpochRows(self._source.num_examples, global_batch, loads, drop_remainder)
        self._check()
        self._pipeline = self._make_pipeline(self._position)
        self._has_agreed = self._num_workers == 1
        self._view: tf.data.Dataset | None = None

    @property
    def num_examples(self) -> int:
        """Examples in an epoch, those of a remainder that is dropped included."""
        return self._source.num_examples

    @property
    def global_batch(self) -> int:
        """Examples of a full step."""
        return self._rows.global_batch

    @property
    def examples_per_epoch(self) -> int:
        """Examples that an epoch uses: without a remainder that is dropped."""
        return (len(self) - 1) * self.global_batch + self._rows.last_batch

    @property
    def seed(self) -> int | None:
        """Of the orders and of `map_fn`; None as long as none was given or drawn."""
        return self._seed

    @property
    def next_epoch(self) -> int:
        """The epoch of the next pass of training or evaluation."""
        return self._position.epoch

    @property
    def element_spec(self) -> Any:
        """Spec of a global batch."""
        return self._all_batches.element_spec

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self._rows.num_steps

    def __iter__(self) -> Iterator[Any]:
        """Yields the global batches of the next epoch; training counts its own."""
        return iter(self._own_batches)

    def start_at(self, epoch: int, step: int = 0, *, seed: int | None = None) -> None:
        """Lets the next pass be that of `epoch`, from `step` on; passes after it count on.

        Nothing that is skipped is mapped. Arrays are not read either, so that it takes no longer however far it is;
        a stream is read up to there. Of a pass that begins after step 0 Keras warns that it is short.

        Args:
            epoch: From 0.
            step: From 0, less than the number of steps.
            seed: Of the run that goes on; None keeps the one that is there.

        Raises:
            DataError: When there is no such step.
        """
        if epoch < 0 or not 0 <= step < len(self):
            raise DataError(
                f"A position must be an epoch, 0 or more, and one of its {len(self)} steps.\n"
                f"Received: epoch={epoch!r}, step={step!r}. Count both from 0."
            )
        for position in (self._position, self._own_position):
            position.epoch, position.step = epoch, step
        self._seed = self._seed if seed is None else seed

    @property
    def reads_by_index(self) -> bool:
        """Whether any example can be read by itself; then the order follows from seed and epoch alone."""
        return isinstance(self._source, ArraySource)

    def examples_at(self, epoch: int, first: int, last: int) -> Any:
        """The examples at the places from `first` to `last` of an epoch's order, before `map_fn`; read by index.

        Args:
            epoch: From 0.
            first: From 0.
            last: The place behind the last one; those behind the end of the epoch are left out.
        """
        if isinstance(self._pipeline, FilePipeline):
            raise TypeError("Files cannot be read by index.")
        positions = tf.range(first, min(last, self.num_examples), dtype=tf.int64)
        return self._pipeline.read_by_index(positions, epoch, self._draw_seed())

    def fingerprint(self) -> tuple[int, int]:
        """The number of examples, and a number made of some of them."""
        return self._source.fingerprint()

    def as_tf_data(self) -> tf.data.Dataset:
        """The global batches as a `tf.data.Dataset`, for whatever takes nothing else.

        Given to a prepared model it is as good as this object itself; what is made from it, by `map` for instance, is
        still exact, but every worker then reads all rows, and a pass must begin at step 0. All workers must call it.
        """
        self.agree_with_other_workers()
        if self._view is None:
            self._view = self._all_batches.apply(tf.data.experimental.assert_cardinality(len(self)))
            self._view.global_dataset = self
        return self._view

    @functools.cached_property
    def _all_batches(self) -> tf.data.Dataset:
        return self._pipeline.whole().prefetch(tf.data.AUTOTUNE)

    @functools.cached_property
    def _own_batches(self) -> tf.data.Dataset:
        return self._make_pipeline(self._own_position).whole().prefetch(tf.data.AUTOTUNE)

    def _make_pipeline(self, position: _Position) -> Pipeline | FilePipeline:
        begin = functools.partial(self._begin, position)
        if not isinstance(self._source, RecordFiles):
            return Pipeline(self._source, self._rows, self._example_map, self._buffer, begin)
        here = len(self._rows.loads) // self._num_workers
        owned = divide_files(self._source.lengths or (), self._rows.loads[::here])
        return FilePipeline(
            self._source, self._rows, owned, self._example_map, self._buffer, self._keeps_examples, begin
        )

    def of_worker(self) -> tf.data.Dataset:
        """What this worker's replicas take: per step a tuple of one `ReplicaBatch` for each."""
        return self._pipeline.of_replicas(local_replicas(self._strategy)).prefetch(tf.data.AUTOTUNE)

    @property
    def worker_load(self) -> tuple[float, ...]:
        """What each replica takes of a full batch, as a share of all."""
        return tuple(float(load / sum(self._rows.loads)) for load in self._rows.loads)

    @property
    def is_unmeasured(self) -> bool:
        """Whether `worker_load="auto"` was given and nothing is measured yet; there is nothing to divide on one."""
        return self._is_unmeasured and self._num_workers > 1

    def check_order(self) -> None:
        """Refuses what has no order that could be kept.

        Raises:
            DataError: When several workers read files of their own.
        """
        if isinstance(self._source, RecordFiles) and self._num_workers > 1:
            raise DataError(
                "`predict` returns its rows in the order of the examples.\n"
                'Received: sharding="files" on several workers, where there is none. Use sharding="exact" here.'
            )

    def measure_loads(self, make_probe: Callable[[], Callable[[Any], None]]) -> None:
        """Measures how fast each worker is, and divides the work by that; to be called by every worker.

        Args:
            make_probe: Returns what a worker does with its rows, without communication.
        """
        self.agree_with_other_workers()
        # Passes of its own; a smaller last step would take another time.
        steps = self._make_pipeline(_Position()).of_replicas(local_replicas(self._strategy))
        full = steps.take(max(1, self.num_examples // self.global_batch)).repeat().prefetch(tf.data.AUTOTUNE)
        loads = self._loads(propose_loads(self._strategy, full, make_probe()))
        self._is_unmeasured = False
        self._rows = dataclasses.replace(self._rows, loads=loads)
        self._check()
        self._pipeline = self._make_pipeline(self._position)

    def _loads(self, worker_load: Sequence[float] | None) -> tuple[Fraction, ...]:
        num_replicas = local_replicas(self._strategy).total
        if self.logical_replicas is not None:
            return tuple(map(Fraction, logical_counts(num_replicas, self.logical_replicas)))
        return replica_loads(worker_load, num_workers=self._num_workers, num_replicas=num_replicas)

    def agree_with_other_workers(self) -> None:
        """Takes the chief's seed, and makes sure that all workers read the same; once.

        Raises:
            DataError: On every worker, naming one whose source differs from the chief's.
        """
        if not self._has_agreed:
            self._seed = agree(
                self._strategy,
                seed=self._draw_seed(),
                fingerprint=self._source.fingerprint(),
                arguments=zlib.crc32(repr((self._rows, self._buffer, self._keeps_examples)).encode()),
            )
            self._has_agreed = True

    def _draw_seed(self) -> int:
        if self._seed is None:
            # From the global generator: `keras.utils.set_random_seed` makes it reproducible.
            self._seed = int(np.random.randint(2**31))
        return self._seed

    def _check(self) -> None:
        if self._rows.num_steps == 0:
            raise DataError(
                "There must be at least one full batch when the remainder is dropped.\n"
                f"Received: {self.num_examples} examples and a global batch of {self.global_batch}. "
                "Use a smaller batch, or drop_remainder=False."
            )
        bounds = self._rows.bounds(self.global_batch)
        idle = [replica for replica, start in enumerate(bounds[:-1]) if start == bounds[replica + 1]]
        if idle:
            raise BatchError(
                "Every replica must have a row of a full batch.\n"
                f"Received: a global batch of {self.global_batch}, of which replica {idle[0]} gets none. "
                "Use a larger batch, or give it a larger share in `worker_load`."
            )

    def _begin(self, position: _Position) -> np.ndarray:
        """Epoch, first step and seed of the pass that begins; the next one is another epoch."""
        begun = np.array([position.epoch, position.step, self._draw_seed()], np.int64)
        position.epoch, position.step = position.epoch + 1, 0
        return begun


@dataclasses.dataclass
class _Position:
    """Where the next pass begins."""

    epoch: int = 0
    step: int = 0


def _check_buffer(shuffle: Any) -> int:
    if not isinstance(shuffle, int) or shuffle < 0:
        raise DataError(
            "`shuffle` must be True, False, or the number of examples among which a stream is mixed.\n"
            f"Received: shuffle={shuffle!r}. Use True."
        )
    return int(shuffle)


def _check_choices(*, sharding: Any, cache: Any, worker_load: Any, seed: Any, logical_replicas: Any) -> None:
    """Refuses values that are none of an argument's."""
    is_auto = isinstance(worker_load, str) and worker_load == "auto"
    rules = (
        (sharding in ("exact", "files"), f"sharding={sharding!r}", '`sharding` must be "exact" or "files".'),
        (cache in (True, False, "mapped"), f"cache={cache!r}", '`cache` must be True, False or "mapped".'),
        (
            not (is_auto and sharding == "files"),
            'worker_load="auto"',
            "`worker_load` must be numbers where files are divided: their lengths decide.",
        ),
        (
            seed is None or (isinstance(seed, int | np.integer) and 0 <= seed < 2**63),
            f"seed={seed!r}",
            "`seed` must be an integer from 0 to 2^63 - 1, or None.",
        ),
        (
            logical_replicas is None or (worker_load is None and sharding == "exact"),
            f"worker_load={worker_load!r}, sharding={sharding!r}, logical_replicas={logical_replicas}",
            "`worker_load` and `sharding` must be left out with `logical_replicas`: rows go by these alone.",
        ),
    )
    for holds, received, rule in rules:
        if not holds:
            raise DataError(f"{rule}\nReceived: {received}. Use one of these, or leave it out.")


class OwnBatches(CountedPasses, tf.distribute.DistributedDataset):
    """A `GlobalDataset` as the replicas of this process take it: each gets its own rows.

    Args:
        dataset: The dataset of the job.
        strategy: Whose replicas to feed.
    """

    def __init__(self, dataset: GlobalDataset, strategy: tf.distribute.Strategy):
        self._dataset = dataset
        self._strategy = strategy
        self.undistributed = dataset
        """What it was made of."""
        self.global_spec = dataset.element_spec
        self._batches: Any = None

    @property
    def element_spec(self) -> Any:
        """Spec of a global batch."""
        return self.global_spec

    def cardinality(self) -> tf.Tensor:
        """Number of global batches."""
        return tf.constant(len(self._dataset), tf.int64)

    def __iter__(self) -> Iterator[Any]:
        """Starts the next epoch."""
        if (ahead := self.take_ahead()) is not None:
            return ahead
        self._dataset.agree_with_other_workers()
        if self._batches is None:
            batches = self._dataset.of_worker()
            self._batches = in_turn_on_gpus(batches, self._strategy) if on_gpus(self._strategy) else batches
        return iter(self._batches)


def find_global_dataset(data: Any) -> GlobalDataset | None:
    """`data` itself, or the dataset that a `tf.data` view stands for; None for other data."""
    # Kept on the view itself: both live, and go, together.
    return data if isinstance(data, GlobalDataset) else getattr(data, "global_dataset", None)
