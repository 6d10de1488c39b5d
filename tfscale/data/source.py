"""What can examples be read from, and how?

Every source knows how many examples there are and, for the rows of a step or from a position of the epoch on, gives
their indices and contents as `tf.data` pieces. An index is the place of an example in the source; a position its place
in the epoch's order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.data.files import RecordFiles, files_of_builder
from tfscale.data.one_order import in_one_order
from tfscale.errors import DataError
from tfscale.framework.datasets import batching_dataset

# A stream cannot be mixed as a whole; so many examples are held and drawn from.
DEFAULT_BUFFER = 10_000
# By so many examples workers find out whether they read the same.
_NUM_COMPARED = 16


class ArraySource:
    """Arrays in memory, or on disk (`numpy.memmap`): any example can be read by itself.

    Args:
        arrays: Nested structure of arrays `[examples, ...]`.
    """

    def __init__(self, arrays: Any):
        leaves = keras.tree.flatten(arrays)
        lengths = sorted({int(leaf.shape[0]) if len(leaf.shape) else -1 for leaf in leaves})
        if len(lengths) != 1 or lengths[0] < 0:
            shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves)
            raise DataError(
                "All arrays must have one row per example.\n"
                f"Received: shapes {shapes}. Give arrays with the same first dimension."
            )
        self.num_examples = lengths[0]
        # On disk they stay there; in memory TensorFlow reads them without Python.
        self._on_disk = any(isinstance(leaf, np.memmap) for leaf in leaves)
        # Not on a GPU, whose memory the model needs.
        with tf.device("CPU:0"):
            convert = _on_host if self._on_disk else tf.convert_to_tensor
            self._arrays = keras.tree.map_structure(convert, arrays)
        self.spec = keras.tree.map_structure(
            lambda leaf: tf.TensorSpec(leaf.shape[1:], tf.as_dtype(leaf.dtype)), self._arrays
        )

    def fingerprint(self) -> tuple[int, int]:
        """The number of examples, and a number made of some of them."""
        some = np.linspace(0, self.num_examples - 1, min(_NUM_COMPARED, self.num_examples)).astype(np.int64)
        examples = [keras.tree.map_structure(lambda leaf, row=row: np.asarray(leaf[row]), self._arrays) for row in some]
        return self.num_examples, _digest(examples)

    def read(self, indices: tf.Tensor) -> Any:
        """The examples at some indices, of any shape, with that shape in front of their own."""
        if not self._on_disk:
            return keras.tree.map_structure(lambda leaf: tf.gather(leaf, indices), self._arrays)
        leaves = keras.tree.flatten(self._arrays)
        dtypes = [tf.as_dtype(leaf.dtype) for leaf in leaves]
        read = tf.numpy_function(lambda rows: [np.asarray(leaf[rows]) for leaf in leaves], [indices], dtypes)
        for value, leaf in zip(read, leaves, strict=True):
            value.set_shape(indices.shape + leaf.shape[1:])
        return keras.tree.pack_sequence_as(self._arrays, read)


class StreamSource:
    """A `tf.data.Dataset` of examples: they can only be read one after the other.

    Args:
        examples: Not batched; its length must be known.
    """

    def __init__(self, examples: tf.data.Dataset):
        batched_by = batching_dataset(examples)
        if batched_by is not None:
            raise DataError(
                "`dp.dataset` takes single examples and batches them itself.\n"
                f"Received: a tf.data.Dataset that was batched (its spec is {examples.element_spec}). "
                "Leave the .batch(...) out, or put .unbatch() after it."
            )
        length = int(examples.cardinality())
        if length < 0:
            infinite = length == int(tf.data.INFINITE_CARDINALITY)
            raise DataError(
                "The number of examples must be known: an epoch needs an end that all workers agree on.\n"
                f"Received: a tf.data.Dataset of {'infinite' if infinite else 'unknown'} length. "
                + (
                    "Leave .repeat() out, or put .take(n) after it."
                    if infinite
                    else "Say how many there are with .apply(tf.data.experimental.assert_cardinality(n))."
                )
            )
        self.num_examples = length
        self.spec = examples.element_spec
        self._examples = examples

    def cached(self) -> StreamSource:
        """The same source, kept in memory once it was read."""
        return StreamSource(self._examples.cache())

    def in_one_order(self) -> StreamSource:
        """The same source, as several workers read it.

        Raises:
            DataError: When each would read it in an order of its own.
        """
        return StreamSource(in_one_order(self._examples))

    def fingerprint(self) -> tuple[int, int]:
        """The number of examples, and a number made of the first."""
        return self.num_examples, _digest(list(self._examples.take(_NUM_COMPARED).as_numpy_iterator()))

    def stream(self, order_seed: tf.Tensor | None, buffer: int) -> tf.data.Dataset:
        """`(index, example)` of a whole epoch; with a seed, mixed through a buffer. For use in a `tf.data` function."""
        # Fails where there are more or fewer than was said: the last step would be another.
        indexed = self._examples.apply(tf.data.experimental.assert_cardinality(self.num_examples)).enumerate()
        if order_seed is None:
            return indexed
        # Of this function's graph alone: else the order would depend on the global seed, which may differ by worker.
        tf.random.set_seed(1)
        return indexed.shuffle(buffer, seed=order_seed, reshuffle_each_iteration=False)


def _digest(examples: list[Any]) -> int:
    """63 bits of the contents."""
    digest = hashlib.blake2b(digest_size=8)
    for leaf in keras.tree.flatten(examples):
        array = np.asarray(getattr(leaf, "values", leaf))
        digest.update(repr((array.dtype, array.shape, array.tolist() if array.dtype.hasobject else b"")).encode())
        digest.update(b"" if array.dtype.hasobject else array.tobytes())
    return int.from_bytes(digest.digest(), "big") >> 1


def make_source(source: Any) -> ArraySource | StreamSource:
    """Recognises what `dp.dataset` was given.

    Args:
        source: Nested structure of arrays, a `tf.data.Dataset` of single examples, a TFDS builder, a `PyDataset`, or
            `RecordFiles`.

    Raises:
        DataError: For anything else, no examples, data that are batched already, or of unknown length.
    """
    return _not_empty(_recognise(source))


def make_files(source: Any) -> RecordFiles:
    """Recognises what `dp.dataset` was given to divide by file.

    Args:
        source: `RecordFiles`, or a TFDS builder.

    Raises:
        DataError: For anything else, or no examples.
    """
    if _is_builder(source):
        return _not_empty(files_of_builder(source, _split_of(source)))
    if not isinstance(source, RecordFiles):
        raise DataError(
            '`sharding="files"` needs a source whose files are known: tfscale.RecordFiles or a TFDS builder.\n'
            f'Received: {type(source).__name__}. Give RecordFiles(names), or leave out sharding="files".'
        )
    return _not_empty(source)


def _not_empty(found: Any) -> Any:
    if found.num_examples == 0:
        raise DataError("There must be at least one example.\nReceived: a source without any. Check where it reads.")
    return found


def _recognise(source: Any) -> ArraySource | StreamSource:
    if isinstance(source, tf.data.Dataset):
        return StreamSource(source)
    if isinstance(source, keras.utils.PyDataset):
        return StreamSource(_examples_of(source))
    if isinstance(source, RecordFiles):
        return StreamSource(source.in_order())
    if _is_builder(source):
        return StreamSource(source.as_dataset(split=_split_of(source)))
    leaves = keras.tree.flatten(source)
    if leaves and all(_is_dense(leaf) for leaf in leaves):
        return ArraySource(_with_tuples(source))
    raise DataError(
        "`source` must be dense arrays, an unbatched tf.data.Dataset, a TFDS builder, a PyDataset or RecordFiles.\n"
        f"Received: {_kind_of(source, leaves)}. Turn it into one of these; examples of different lengths go into a "
        "tf.data.Dataset, and are padded in it or in `map_fn`."
    )


def _kind_of(source: Any, leaves: list[Any]) -> str:
    kinds = sorted({type(leaf).__name__ for leaf in leaves if not _is_dense(leaf)} - {type(source).__name__})
    return type(source).__name__ + (f" with {', '.join(kinds)}" if kinds else "")


def _is_builder(source: Any) -> bool:
    """Whether it is one of TFDS, known by its methods: tensorflow-datasets need not be installed."""
    return hasattr(source, "as_dataset") and hasattr(source, "info")


def _split_of(builder: Any) -> str:
    splits = list(builder.info.splits)
    return "train" if "train" in splits else str(splits[0])


def _is_dense(leaf: Any) -> bool:
    is_sparse = isinstance(leaf, tf.RaggedTensor | tf.SparseTensor) or hasattr(leaf, "toarray")
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not is_sparse


def _on_host(leaf: Any) -> Any:
    """An array that takes NumPy's indices; one on disk stays there."""
    return leaf if isinstance(leaf, np.memmap) else np.asarray(leaf)


def _with_tuples(structure: Any) -> Any:
    """Tuples in the place of lists, which `tf.data` takes for arrays of their own."""
    if isinstance(structure, dict):
        return {key: _with_tuples(value) for key, value in structure.items()}
    if isinstance(structure, list | tuple) and not hasattr(structure, "_fields"):
        return tuple(map(_with_tuples, structure))
    return structure


def _examples_of(dataset: keras.utils.PyDataset) -> tf.data.Dataset:
    """The single examples of a `PyDataset`, whose items are batches of any size."""
    num_items = dataset.num_batches
    if num_items is None:
        raise DataError(
            "The number of examples must be known: an epoch needs an end that all workers agree on.\n"
            "Received: a PyDataset without a length. Give it a __len__."
        )

    def items() -> Iterator[Any]:
        for index in range(num_items):
            yield keras.tree.map_structure(np.asarray, _with_tuples(dataset[index]))
        dataset.on_epoch_end()

    if num_items == 0:
        return tf.data.Dataset.range(0)
    first, last = (keras.tree.map_structure(np.asarray, _with_tuples(dataset[index])) for index in (0, num_items - 1))
    rows = [len(keras.tree.flatten(item)[0]) for item in (first, last)]
    spec = keras.tree.map_structure(lambda leaf: tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype), first)
    total = rows[0] * (num_items - 1) + rows[1]
    examples = tf.data.Dataset.from_generator(items, output_signature=spec).unbatch()
    return examples.apply(tf.data.experimental.assert_cardinality(total))
