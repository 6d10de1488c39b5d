"""Which files hold the examples, how many are in each, and which worker reads which?"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import tensorflow as tf

from tfscale.errors import DataError


@dataclass(frozen=True)
class RecordFiles:
    """Files of records as a source for `DataParallel.dataset`: what is in a file is known from its name alone.

    Args:
        names: The files in order, or a pattern such as "data/train-*.tfrecord", whose matches are sorted.
        read: From a file's name, a string tensor, to a `tf.data.Dataset` of its examples.
        lengths: Examples of each file; None has every worker read every file once to count them.

    Raises:
        DataError: When there are no files, or not as many lengths as files.

    Example:
        >>> import os, tempfile, tensorflow as tf, tfscale
        >>> directory = tempfile.TemporaryDirectory()
        >>> for name, records in {"a": (b"0", b"1"), "b": (b"2",)}.items():
        ...     with tf.io.TFRecordWriter(os.path.join(directory.name, name)) as writer:
        ...         for record in records:
        ...             writer.write(record)
        >>> files = tfscale.RecordFiles(os.path.join(directory.name, "*"))
        >>> data = tfscale.DataParallel(global_batch=2, devices=1).dataset(files, map_fn=tf.strings.to_number)
        >>> [batch.numpy().tolist() for batch in data]
        [[0.0, 1.0], [2.0]]
        >>> directory.cleanup()
    """

    names: str | Sequence[str]
    read: Callable[[Any], tf.data.Dataset] = tf.data.TFRecordDataset
    lengths: Sequence[int] | None = None

    def __post_init__(self) -> None:
        names = sorted(tf.io.gfile.glob(self.names)) if isinstance(self.names, str) else list(self.names)
        if not names:
            raise DataError(
                f"`RecordFiles` needs files.\nReceived: names={self.names!r}, which are none. Check the directory."
            )
        lengths = self._count(names) if self.lengths is None else list(self.lengths)
        if len(lengths) != len(names) or min(lengths) < 0:
            raise DataError(
                "`lengths` must say of each file how many examples it has.\n"
                f"Received: {len(lengths)} lengths, {min(lengths, default=0)} the least, for {len(names)} files."
            )
        object.__setattr__(self, "names", tuple(map(os.fspath, names)))
        object.__setattr__(self, "lengths", tuple(map(int, lengths)))

    def _count(self, names: list[str]) -> list[int]:
        def count(name: tf.Tensor) -> tf.Tensor:
            return self.read(name).reduce(tf.constant(0, tf.int64), lambda reached, *_: reached + 1)

        counted = tf.data.Dataset.from_tensor_slices(names).map(count, num_parallel_calls=tf.data.AUTOTUNE)
        return [int(each) for each in counted.as_numpy_iterator()]

    @property
    def num_examples(self) -> int:
        """Examples in all files."""
        return sum(self.lengths or ())

    def fingerprint(self) -> tuple[int, int]:
        """The number of examples, and a number made of the names, without directories, and the lengths."""
        files = [(os.path.basename(name), length) for name, length in zip(self.names, self.lengths or (), strict=True)]
        digest = hashlib.blake2b(repr(files).encode(), digest_size=8).digest()
        return self.num_examples, int.from_bytes(digest, "big") >> 1

    def examples(self, files: Any, *, num_at_once: int = 1) -> tf.data.Dataset:
        """`(index, example)` of some files, each of which must have its length.

        Args:
            files: Their places in `names`, int64 tensor `[files]`.
            num_at_once: Files to read from in turn.
        """
        lengths = tf.constant(self.lengths, tf.int64)
        names, offsets = tf.constant(self.names), tf.cumsum(lengths, exclusive=True)

        def read(file: tf.Tensor) -> tf.data.Dataset:
            checked = self.read(names[file]).apply(tf.data.experimental.assert_cardinality(lengths[file]))
            return tf.data.Dataset.zip(tf.data.Dataset.range(offsets[file], tf.int64.max), checked)

        # So many in turn, and not as many as are good for this machine: the order must not depend on that.
        return tf.data.Dataset.from_tensor_slices(files).interleave(
            read, cycle_length=num_at_once, block_length=16, num_parallel_calls=num_at_once, deterministic=True
        )

    def in_order(self) -> tf.data.Dataset:
        """The examples of all files, one file after the other."""
        examples = self.examples(tf.range(len(self.names), dtype=tf.int64)).map(lambda index, example: example)
        return examples.apply(tf.data.experimental.assert_cardinality(self.num_examples))


def files_of_builder(builder: Any, split: str) -> RecordFiles:
    """The files of a TFDS builder; reading one yields what the builder does.

    Args:
        builder: Of TensorFlow Datasets; its data are prepared.
        split: Whose files.

    Raises:
        DataError: When they are no TFRecord files.
    """
    info = builder.info
    file_format = getattr(getattr(info, "file_format", None), "value", "tfrecord")
    if file_format != "tfrecord":
        raise DataError(
            'With `sharding="files"` the files of a TFDS builder must be TFRecord files.\n'
            f'Received: {file_format} files. Use sharding="exact", or RecordFiles with a `read` of your own.'
        )

    def read(name: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(name).map(info.features.deserialize_example)

    found = info.splits[split]
    return RecordFiles([os.fspath(path) for path in found.filepaths], read, found.shard_lengths)


def divide_files(lengths: Sequence[int], loads: Sequence[Fraction]) -> tuple[tuple[int, ...], ...]:
    """Which worker reads which files: the longest first, each to whoever is done with it soonest.

    Args:
        lengths: Examples of each file.
        loads: What each worker takes, in any unit.

    Returns:
        Per worker the places of its files, ascending.

    Raises:
        DataError: When a worker gets no example.

    Example:
        >>> from tfscale.data.files import divide_files
        >>> divide_files([30, 10, 20, 10], [1, 1])
        ((0, 3), (1, 2))
    """
    owned: list[list[int]] = [[] for _ in loads]
    taken = [0] * len(loads)
    for file in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        worker = min(range(len(loads)), key=lambda each: Fraction(taken[each] + lengths[file]) / loads[each])
        owned[worker].append(file)
        taken[worker] += lengths[file]
    if min(taken) == 0:
        raise DataError(
            'With `sharding="files"` every worker must have files of its own.\n'
            f"Received: {sum(map(bool, lengths))} files with examples for {len(loads)} workers, of which worker "
            f'{taken.index(0)} gets none. Make more files, better many more, or use sharding="exact".'
        )
    return tuple(tuple(sorted(files)) for files in owned)
