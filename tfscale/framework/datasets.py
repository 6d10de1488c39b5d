"""The unpromised names of data sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfscale.framework.hooks import read


def distributed_dataset(epoch_iterator: Any) -> Any:
    """The dataset that a Keras epoch iterator runs over, as the strategy returned it.

    Why and breaks first: as `models.build_from_spec`.
    """
    return read(epoch_iterator, "_distributed_dataset")


def one_replica_spec(dataset: tf.distribute.DistributedDataset) -> Any:
    """Specs of what one replica gets from a dataset that TF distributed; rows of the batch are left open.

    Why: `element_spec` holds one spec per replica in a container that is not public.
    Breaks first: tests/training/test_contract.py, the table of inputs.
    """
    first = spec_of_replica(dataset.element_spec, 0)
    return tf.nest.map_structure(lambda spec: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype), first)


def spec_of_replica(element_spec: Any, index: int) -> Any:
    """Specs of what one replica of this process gets of an element that TF distributed.

    Why and breaks first: as `one_replica_spec`.
    """
    return tf.nest.map_structure(
        lambda spec: spec._value_specs[index] if hasattr(spec, "_value_specs") else spec, element_spec
    )


def batching_dataset(dataset: tf.data.Dataset) -> str | None:
    """The name of the transformation that batched the elements of `dataset`, or None.

    Why: a spec cannot tell a batch from an example of variable length. Looks through what leaves elements as they
    are, such as `prefetch` and `shuffle`, and through a `map` after which everything still has the rows of a batch.
    Breaks first: tests/data/test_bad_input.py::test_batched.
    """
    rows: set[Any] = set()
    while True:
        name = type(dataset).__name__.strip("_")
        found = _rows_of_spec(dataset.element_spec)
        if name in (*_BATCHES, "DenseToRaggedDataset"):
            return name if rows <= found else None
        if name in _MAPS:
            rows |= found
        elif name not in _UNCHANGED_ELEMENTS:
            return None
        (dataset,) = read(dataset, "_inputs")()


def batch_sizes(dataset: tf.data.Dataset) -> list[int | None]:
    """Of how many rows the batches are that each part of an element comes from; None where the pipeline does not tell.

    Why: `zip` puts batches of several sizes together, which specs tell with `drop_remainder` only.
    Breaks first: tests/training/check/test_several_sizes.py.
    """
    name = type(dataset).__name__.strip("_")
    parts = tf.nest.flatten(dataset.element_spec)
    inputs = read(dataset, "_inputs")()
    if name == "ZipDataset":
        return [size for each in inputs for size in batch_sizes(each)]
    if name in _UNCHANGED_ELEMENTS:
        return batch_sizes(inputs[0])
    if name in _BATCHES:
        size = tf.get_static_value(read(dataset, "_batch_size"))
        return [None if size is None else int(size)] * len(parts)
    if name not in _MAPS:
        return [None] * len(parts)
    before = {*batch_sizes(inputs[0])}
    # What a function makes of one batch has its rows, as far as specs tell.
    is_kept = len(before) == 1 and _rows_of_spec(dataset.element_spec) <= _rows_of_spec(inputs[0].element_spec)
    return [before.pop() if is_kept else None] * len(parts)


def groups_by_window(dataset: tf.data.Dataset) -> bool:
    """Whether `dataset` was batched by `group_by_window` or `bucket_by_sequence_length`, in batches of many sizes.

    Why: as `batching_dataset`.
    Breaks first: tests/training/test_contract.py, the case of buckets.
    """
    name = type(dataset).__name__.strip("_")
    if name == "GroupByWindowDataset":
        return True
    looks_through = name in _MAPS or name in _UNCHANGED_ELEMENTS
    return looks_through and any(map(groups_by_window, read(dataset, "_inputs")()))


def _rows_of_spec(spec: Any) -> set[Any]:
    """The first dimensions of all parts: None where it is unknown, -1 where there is none."""
    shapes = [getattr(leaf, "shape", None) for leaf in tf.nest.flatten(spec)]
    return {shape[0] if shape is not None and shape.rank else -1 for shape in shapes}


_BATCHES = ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset")
# Of what a pipeline holds, so that it can be asked for its definition.
_MOST_COPIED_BYTES = 2**26
_MAPS = ("MapDataset", "ParallelMapDataset")
_FLATTENED = ("FlatMapDataset", "InterleaveDataset", "ParallelInterleaveDataset")
_UNCHANGED_ELEMENTS = frozenset(
    f"{name}Dataset"
    for name in ("AssertCardinality", "Cache", "Options", "Prefetch", "Repeat", "Shard", "Shuffle", "Skip", "Take")
) | {"AssertCardinality", "OptionsDataset", "CacheDataset"}


def has_unseeded_shuffle(dataset: tf.data.Dataset) -> bool:
    """Whether a shuffle without any seed, global ones included, is anywhere in the pipeline of `dataset`.

    That is a `shuffle`, or what Keras does with the numbers of the rows of arrays: `tf.random.shuffle` in a `map`.

    Why: each worker would draw an order of its own, and nothing public tells.
    Breaks first: tests/data/test_two_workers.py::test_plain_shuffle.
    """
    return any(map(_is_drawn, _shuffles(dataset))) or any(map(_shuffles_numbers, _pipeline(dataset)))


def shuffle_seeds(dataset: tf.data.Dataset) -> list[int | None]:
    """The seeds of all that shuffles in the pipeline of `dataset`; None for one that is known only when it runs.

    Why and breaks first: as `has_unseeded_shuffle`.
    """
    tensors = [read(each, name) for each in _shuffles(dataset) for name in ("_seed", "_seed2")]
    known = [tf.get_static_value(each) for each in tensors]
    return [None if seed is None else int(seed) for seed in known]


def has_order_per_pass(dataset: tf.data.Dataset) -> bool:
    """Whether a `shuffle` in the pipeline of `dataset` gives each pass an order of its own.

    Why: a new process begins with the order of the first pass, and nothing public tells.
    Breaks first: tests/recovery/test_fit_data.py.
    """
    return any(map(_changes_each_pass, _shuffles(dataset)))


def shares_order_per_pass(one: tf.data.Dataset, other: tf.data.Dataset) -> bool:
    """Whether the passes of two data sets draw their orders from one `shuffle`, of which each pass gets the next.

    Why and breaks first: as `has_order_per_pass`; tests/training/call/test_row_order.py.
    """
    known = set(map(id, _shuffles(one)))
    return any(id(each) in known and _changes_each_pass(each) for each in _shuffles(other))


def has_drawn_order(dataset: tf.data.Dataset) -> bool:
    """Whether a `shuffle` without any seed gives each pass an order that no process has again.

    Why and breaks first: as `has_order_per_pass`.
    """
    return any(_changes_each_pass(each) and _is_drawn(each) for each in _shuffles(dataset))


def shuffles_batches(dataset: tf.data.Dataset) -> bool:
    """Whether a `shuffle` in the pipeline of `dataset` comes after its `batch`, so that a smaller one may come first.

    Why: nothing public tells. Breaks first: tests/training/test_calls.py::test_small_batch_in_any_place.
    """
    return any("BatchDataset" in type(before).__name__ for each in _shuffles(dataset) for before in _pipeline(each))


def draws_values(dataset: tf.data.Dataset) -> bool:
    """Whether a function in the pipeline of `dataset` may make other values of the same examples, as augmentation does.

    One that draws, calls Python or counts, in a `map`; or that draws, in what is flattened or interleaved. What
    chooses or orders examples does not count: a `filter`, `sample_from_datasets`, a generator.

    Why: nothing public tells what functions a pipeline has. Breaks first: tests/data/test_labels_read.py.
    """
    return any(map(_draws_values, _pipeline(dataset)))


def is_ordered_by_time(dataset: tf.data.Dataset) -> bool:
    """Whether a transformation in the pipeline of `dataset` hands on what is ready first (`deterministic=False`).

    Of options, which `dataset.options()` has, nothing is said.

    Why: nothing public tells. Breaks first: tests/data/test_one_order.py.
    """
    return any(map(_is_ordered_by_time, _pipeline(dataset)))


def cache_files(dataset: tf.data.Dataset) -> list[str]:
    """The files in which the pipeline of `dataset` keeps what it has read, without their endings.

    Why: nothing public tells. Breaks first: tests/training/call/test_cache_files.py.
    """
    caches = [each for each in _pipeline(dataset) if type(each).__name__ == "CacheDataset"]
    names = [tf.get_static_value(read(each, "_filename")) for each in caches]
    return [name.decode() for name in names if name]


def _pipeline(dataset: tf.data.Dataset) -> Iterator[Any]:
    """This data set and all that it is made of."""
    yield dataset
    for each in read(dataset, "_inputs")():
        yield from _pipeline(each)


def _shuffles(dataset: tf.data.Dataset) -> list[Any]:
    return [each for each in _pipeline(dataset) if type(each).__name__ == "_ShuffleDataset"]


def _is_drawn(shuffle: Any) -> bool:
    """Whether no seed was given; one that is known only when it runs was."""
    seeds = [tf.get_static_value(seed) for seed in (read(shuffle, "_seed"), read(shuffle, "_seed2"))]
    return all(seed is not None and int(seed) == 0 for seed in seeds)


def _shuffles_numbers(dataset: Any) -> bool:
    """Whether this is a `map` that makes a vector of numbers, out of numbers alone, in an order that it draws."""
    spec, function = dataset.element_spec, getattr(dataset, "_map_func", None)
    if function is None or not (isinstance(spec, tf.TensorSpec) and spec.dtype.is_integer and spec.shape.rank == 1):
        return False
    sources = [type(each).__name__ for each in _pipeline(dataset) if not read(each, "_inputs")()]
    operations = function.function.graph.get_operations()
    drawn = [each for each in operations if each.type == "RandomShuffle"]
    return {*sources} == {"_RangeDataset"} and any(
        not (each.get_attr("seed") or each.get_attr("seed2")) for each in drawn
    )


def _changes_each_pass(shuffle: Any) -> bool:
    return read(shuffle, "_reshuffle_each_iteration") is not False


def _draws_values(dataset: Any) -> bool:
    name = type(dataset).__name__.strip("_")
    if name not in (*_MAPS, *_FLATTENED):
        return False
    kinds = {kind for each in read(dataset, "_functions")() for kind in _operations(each.function.graph)}
    drawn = ("Random",) if name in _FLATTENED else ("Random", "PyFunc", "EagerPyFunc", "AssignVariable", "AssignAdd")
    return any(kind.startswith(drawn) for kind in kinds)


def _is_ordered_by_time(dataset: Any) -> bool:
    name = type(dataset).__name__.strip("_")
    if name in ("ParallelMapDataset", "ParallelBatchDataset") and read(dataset, "_deterministic") == "false":
        return True
    graphs = [each.function.graph.as_graph_def() for each in read(dataset, "_functions")()]
    if name == "ParallelInterleaveDataset":
        graphs += _own_graph(dataset)
    return any(node.attr["deterministic"].s == b"false" for graph in graphs for node in _nodes(graph))


def _own_graph(dataset: Any) -> list[Any]:
    """The definition of `dataset`, with all that it reads: what it was told about its order is kept nowhere else."""
    tensors = [each for source in _pipeline(dataset) for each in getattr(source, "_tensors", ())]
    # They would be copied. What is interleaved is names of files, as a rule.
    if sum((each.shape.num_elements() or 0) * each.dtype.size for each in tensors) > _MOST_COPIED_BYTES:
        return []
    ignoring = 1
    variant = tf.data.experimental.to_variant(dataset)
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=ignoring).numpy()
    return [tf.compat.v1.GraphDef.FromString(text)]


def _operations(graph: Any) -> Iterator[str]:
    """The kinds of all operations of a function and of those that it calls."""
    yield from (node.op for node in _nodes(graph.as_graph_def()))


def _nodes(definition: Any) -> Iterator[Any]:
    for nodes in (definition.node, *(each.node_def for each in definition.library.function)):
        yield from nodes
