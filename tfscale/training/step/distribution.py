"""What becomes of a dataset that is given to a prepared model?

`strategy.experimental_distribute_dataset` is where Keras hands over its data. It splits any batch to the row, has
training data checked that they come in global batches, and recognises what `DataParallel.dataset` made.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf

from tfscale.data.dataset import GlobalDataset, OwnBatches, find_global_dataset
from tfscale.data.labels_read import READING
from tfscale.data.loop_data import noting_for_loop
from tfscale.data.one_order import in_one_order
from tfscale.data.pass_ends import PassEnds
from tfscale.errors import DataError
from tfscale.exact.plain_step import has_own_logs
from tfscale.framework.datasets import batch_sizes, one_replica_spec
from tfscale.replicas.owners import Fact, PreparedModel
from tfscale.replicas.peers import passes_read
from tfscale.replicas.replica_batch import LOGICAL_REPLICAS, GlobalBatches, local_replicas
from tfscale.replicas.uncaught import is_of_tfscale
from tfscale.training.step.batch_checks import EXPECTED, checked_batches
from tfscale.training.step.unprepared import calling_model, is_prepared, prepare_other

# Specs of a batch of what it was given last.
LAST_SPEC = Fact[Any](PreparedModel, "last data", lambda spec: f"{len(tf.nest.flatten(spec))} parts")


def distribute_global_batches(strategy: tf.distribute.Strategy) -> None:
    """Makes `strategy.experimental_distribute_dataset` split batches to the row, any size, on any number of workers.

    TF's own rebatches by shape, lets the last replicas run dry, and on several workers asks at every step, with a
    collective, whether any worker still has data.
    """
    # Every replica gets a batch at every step, empty ones included, so nothing needs to be asked.
    strategy.extended.experimental_enable_get_next_as_optional = False

    def distribute(dataset: Any, options: Any = None) -> tf.distribute.DistributedDataset:
        del options
        model = calling_model()
        distributed = divided(dataset, model)
        if model is not None:
            LAST_SPEC.set(model, dataset_spec(distributed))
        return distributed

    def divided(dataset: Any, model: keras.Model | None) -> tf.distribute.DistributedDataset:
        if isinstance(dataset, tf.distribute.DistributedDataset):
            return dataset
        if model is not None and not is_prepared(model):
            prepare_other(model, strategy)
        # Taken by whatever comes first, which is the training data; what is left would be for evaluation data.
        expected = EXPECTED.forget(strategy)
        own = find_global_dataset(dataset)
        logical = None if model is None else LOGICAL_REPLICAS.of(model)
        if own is not None:
            _check_division(own, logical)
            return OwnBatches(own, strategy)
        replicas = local_replicas(strategy)
        if replicas.on_several_workers:
            dataset = in_one_order(dataset)
        if model is None:
            _check_one_size(dataset)
        sizes = batch_sizes(dataset) if model is not None and has_own_logs(model) else None
        checked = checked_batches(dataset, expected, sizes)
        batches = functools.partial(GlobalBatches, checked, strategy, logical=logical, sizes=sizes)
        reading = READING.of(strategy)
        if model is None:
            replicas = local_replicas(strategy)
            if not replicas.on_several_workers:
                return batches(for_loop=True)
            return batches(for_loop=True, noting=functools.partial(noting_for_loop, passes=passes_read(strategy)))
        if reading is None:
            return batches()
        return batches(noting=reading.add(checked, passes_read(strategy)))

    strategy.experimental_distribute_dataset = distribute
    _note_ends_of_own_data(strategy)


def _note_ends_of_own_data(strategy: tf.distribute.Strategy) -> None:
    """Has the ends of data noted of which a script makes each worker's own: a step needs a batch of every worker."""
    replicas, distribute = local_replicas(strategy), strategy.distribute_datasets_from_function
    if not replicas.on_several_workers:
        return

    def distribute_own(dataset_fn: Any, options: Any = None) -> tf.distribute.DistributedDataset:
        if is_of_tfscale(dataset_fn):
            return distribute(dataset_fn, options)
        ends = PassEnds(passes_read(strategy))
        return distribute(lambda context: ends.noting(dataset_fn(context)), options)

    strategy.distribute_datasets_from_function = distribute_own


def dataset_spec(dataset: Any) -> Any:
    """Specs of one global batch of a distributed dataset; None where a part of the batch is missing."""
    spec = dataset.global_spec if isinstance(dataset, GlobalBatches | OwnBatches) else one_replica_spec(dataset)
    return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, tf.OptionalSpec) else leaf, spec)


def _check_one_size(dataset: tf.data.Dataset) -> None:
    """Refuses data for a loop by hand that put batches of several sizes together, where the pipeline tells."""
    sizes = {each for each in batch_sizes(dataset) if each is not None}
    if len(sizes) > 1:
        raise DataError(
            "In a loop by hand all parts of a batch must have as many rows: of each data set the replicas get their "
            "own share.\n"
            f"Received: batches of {' and '.join(map(str, sorted(sizes)))} rows, put together by `zip`. Give each of "
            "the data sets to `strategy.experimental_distribute_dataset`, and its batch to `strategy.run` beside the "
            "other."
        )


def _check_division(dataset: GlobalDataset, logical_replicas: int | None) -> None:
    if dataset.logical_replicas != logical_replicas:
        raise DataError(
            "Data and model must have the same `logical_replicas`.\n"
            f"Received: {dataset.logical_replicas} of the data, {logical_replicas} of the model. Make both by one "
            "`DataParallel`."
        )
