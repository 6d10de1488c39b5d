"""The non-public TensorFlow and Keras names about data sets, by the rules of `_tf_private.py`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def distributed_dataset(epoch_iterator: Any) -> Any:
    """The dataset that a Keras epoch iterator runs over, as the strategy returned it.

    Why and breaks first: as `_tf_private.build_from_spec`.
    """
    return epoch_iterator._distributed_dataset


def one_replica_spec(dataset: tf.distribute.DistributedDataset) -> Any:
    """Specs of what one replica gets from a dataset that TF distributed; rows of the batch are left open.

    Why: `element_spec` holds one spec per replica in a container that is not public.
    Breaks first: tests/training/test_contract.py, the table of inputs.
    """

    def first(spec: Any) -> Any:
        spec = spec._value_specs[0] if hasattr(spec, "_value_specs") else spec
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)

    return tf.nest.map_structure(first, dataset.element_spec)


def batching_dataset(dataset: tf.data.Dataset) -> str | None:
    """The name of the transformation that batched the elements of `dataset`, or None.

    Why: a spec cannot tell a batch from an example of variable length. Looks through what leaves elements as they
    are, such as `prefetch` and `shuffle`, and through a `map` after which everything still has the rows of a batch.
    Breaks first: tests/training/data/test_bad_input.py::test_batched.
    """
    rows: set[Any] = set()
    while True:
        name = type(dataset).__name__.strip("_")
        found = _rows_of_spec(dataset.element_spec)
        if name in ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset", "DenseToRaggedDataset"):
            return name if rows <= found else None
        if name in ("MapDataset", "ParallelMapDataset"):
            rows |= found
        elif name not in _UNCHANGED_ELEMENTS:
            return None
        (dataset,) = dataset._inputs()


def groups_by_window(dataset: tf.data.Dataset) -> bool:
    """Whether `dataset` was batched by `group_by_window` or `bucket_by_sequence_length`, in batches of many sizes.

    Why: as `batching_dataset`.
    Breaks first: tests/training/test_contract.py, the case of buckets.
    """
    name = type(dataset).__name__.strip("_")
    if name == "GroupByWindowDataset":
        return True
    looks_through = name in ("MapDataset", "ParallelMapDataset") or name in _UNCHANGED_ELEMENTS
    return looks_through and any(map(groups_by_window, dataset._inputs()))


def _rows_of_spec(spec: Any) -> set[Any]:
    """The first dimensions of all parts: None where it is unknown, -1 where there is none."""
    shapes = [getattr(leaf, "shape", None) for leaf in tf.nest.flatten(spec)]
    return {shape[0] if shape is not None and shape.rank else -1 for shape in shapes}


_UNCHANGED_ELEMENTS = frozenset(
    f"{name}Dataset"
    for name in ("AssertCardinality", "Cache", "Options", "Prefetch", "Repeat", "Shard", "Shuffle", "Skip", "Take")
) | {"AssertCardinality", "OptionsDataset", "CacheDataset"}


def has_unseeded_shuffle(dataset: tf.data.Dataset) -> bool:
    """Whether a `shuffle` without any seed, global ones included, is anywhere in the pipeline of `dataset`.

    Why: each worker would draw an order of its own, and nothing public tells.
    Breaks first: tests/training/data/test_two_workers.py::test_plain_shuffle_without_a_seed.
    """
    if type(dataset).__name__ == "_ShuffleDataset":
        seeds = [tf.get_static_value(seed) for seed in (dataset._seed, dataset._seed2)]
        if all(seed is not None and int(seed) == 0 for seed in seeds):
            return True
    return any(has_unseeded_shuffle(each) for each in dataset._inputs())
