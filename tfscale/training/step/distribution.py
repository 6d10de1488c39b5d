"""What becomes of a dataset that is given to a prepared model?

`strategy.experimental_distribute_dataset` is where Keras hands over its data. It splits any batch to the row, checks
that training data come in global batches, and recognises what `DataParallel.dataset` made.
"""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.cluster.place import ON_BATCH
from tfscale.data.dataset import GlobalDataset, OwnBatches, find_global_dataset
from tfscale.errors import DataError, ModelError
from tfscale.exact.plain_step import has_own_logs
from tfscale.exact.randomness import seeds_of_replicas, separate_random_streams
from tfscale.framework.datasets import (
    batch_sizes,
    groups_by_window,
    has_unseeded_shuffle,
    one_replica_spec,
    shuffles_batches,
)
from tfscale.replicas.batch_rows import WAY_OUT, Leaf, RowPlan, leaves_of, numbers_of_rows, plan_rows
from tfscale.replicas.branches import refusing_lone_collectives
from tfscale.replicas.callers import callers
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_batch import LOGICAL_REPLICAS, GlobalBatches, has_rows, local_replicas, num_rows
from tfscale.replicas.uncaught import begin_loop
from tfscale.training.step.hand_loops import prepare_function, rows_here
from tfscale.training.step.hand_means import MeansByRows

_log = logging.getLogger(__name__)


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
        model = _calling_model()
        if model is not None and not is_prepared(model):
            _prepare_other(model, strategy)
        # Taken by whatever comes first, which is the training data; what is left would be for evaluation data.
        expected = EXPECTED.forget(strategy)
        own = find_global_dataset(dataset)
        logical = None if model is None else LOGICAL_REPLICAS.of(model)
        if own is not None:
            _check_division(own, logical)
            return OwnBatches(own, strategy)
        _refuse_own_orders(dataset, strategy)
        sizes = batch_sizes(dataset) if model is not None and has_own_logs(model) else None
        checked = _checked(dataset, expected, sizes)
        return GlobalBatches(checked, strategy, for_loop=model is None, logical=logical, sizes=sizes)

    strategy.experimental_distribute_dataset = distribute


def run_loops(
    strategy: tf.distribute.Strategy, look_at_loop: Callable[[tf.distribute.Strategy, int, Sequence[Any], Any], None]
) -> None:
    """Makes `strategy.run` prepare what loops by hand give to it, and `strategy.reduce` take means by rows.

    Args:
        strategy: To be changed.
        look_at_loop: Looks at what a function of a loop by hand has become in a graph; told of the strategy, of the
            number of operations that the graph had before, of the rows of each replica of this process and of the
            results.
    """
    run = strategy.run
    means = MeansByRows(strategy, run, strategy.reduce)
    lifted: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def lift(fn: Any) -> Any:
        given = weakref.ref(fn)
        return tf.function(lambda *args: run_once(given(), *args), autograph=False, reduce_retracing=True)

    def run_once(fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        if tf.executing_eagerly() and isinstance(fn, tf.types.experimental.PolymorphicFunction):
            # Replicas that are run take turns, and could not send anything from inside of it.
            if fn not in lifted:
                lifted[fn] = lift(fn)
            return lifted[fn](args, kwargs, options)
        is_by_hand = _calling_model(_CALLS + ON_BATCH) is None
        if is_by_hand:
            begin_loop(strategy, fn)
            fn = prepare_function(strategy, fn, args, kwargs or {})
        separate_random_streams(strategy)
        known = None if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())
        with refusing_lone_collectives(strategy), seeds_of_replicas(fn) as on_replica:
            results = run(on_replica, args, kwargs, options)
        if is_by_hand:
            rows = rows_here(strategy, args, kwargs or {})
            if known is not None:
                look_at_loop(strategy, known, rows, results)
            results = means.with_rows(results, rows, (args, kwargs))
        model = _calling_model(ON_BATCH)
        if model is None or is_prepared(model):
            return results
        _refuse_on_workers(model, strategy)
        # Keras gave the whole batch to every replica, and all have computed the same.
        return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)

    strategy.run, strategy.reduce = run_once, means.reduce


def _check_division(dataset: GlobalDataset, logical_replicas: int | None) -> None:
    if dataset.logical_replicas != logical_replicas:
        raise DataError(
            "Data and model must have the same `logical_replicas`.\n"
            f"Received: {dataset.logical_replicas} of the data, {logical_replicas} of the model. Make both by one "
            "`DataParallel`."
        )


_CALLS = ("fit", "evaluate", "predict")


def _refuse_on_workers(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    replicas = local_replicas(strategy)
    if replicas.here < replicas.total:
        raise ModelError(
            "A model that is used on single batches by several workers must be prepared.\n"
            f"Received: model {model.name!r}, as it is. Call dp.prepare(model) first."
        )


# How a model is prepared that is used under the scope as it is.
PREPARES = Fact[Callable[[keras.Model], Any]](ReplicaGroup, "prepares", lambda _: "models as they are used")


def prepare_others(strategy: tf.distribute.Strategy, prepare: Callable[[keras.Model], Any]) -> None:
    """Lets `prepare(model)` prepare every model of `strategy` that `fit`, `evaluate` or `predict` meet unprepared.

    Encoders, decoders and generators that are taken out of a prepared model are often used so.
    """
    PREPARES.set(strategy, prepare)


def is_prepared(model: keras.Model) -> bool:
    """Whether `prepare` has given `model` steps of its own."""
    return "make_predict_function" in vars(model)


def _calling_model(names: Sequence[str] = _CALLS) -> keras.Model | None:
    """The model of which one of these methods is running in this thread."""
    return next(iter(callers(keras.Model, *names)), None)


def _prepare_other(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    prepare = PREPARES.of(strategy)
    if prepare is None:
        raise ModelError(
            "A model that is used under a strategy of tfscale must be prepared.\n"
            f"Received: model {model.name!r}, as it is. Call dp.prepare(model) first."
        )
    _log.info("model %r was not prepared, and is now, as it is used: batches of any size, checks as usual", model.name)
    prepare(model)


def _refuse_own_orders(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy) -> None:
    replicas = local_replicas(strategy)
    if replicas.here < replicas.total and has_unseeded_shuffle(dataset):
        raise DataError(
            "All workers must read the data in one order: each takes its own rows of every batch.\n"
            "Received: data that are shuffled without a seed, in another order on each, so that examples would be "
            "repeated and lost. Give the source to `dp.dataset(..., shuffle=True)`, or `shuffle` a seed; arrays that "
            "`fit` shuffles go by `DataParallel(seed=)`."
        )


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


def dataset_spec(dataset: Any) -> Any:
    """Specs of one global batch of a distributed dataset; None where a part of the batch is missing."""
    spec = dataset.global_spec if isinstance(dataset, GlobalBatches | OwnBatches) else one_replica_spec(dataset)
    return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, tf.OptionalSpec) else leaf, spec)


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


def _checked(
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
