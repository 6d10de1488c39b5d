"""Are the batches of two workers those of the same examples?

Their labels tell, which augmentation leaves alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.cluster.passes import are_same_labels
from tfscale.replicas.agreement import gather_from_workers

# One alone agrees by chance about once in a thousand times.
_SUMS = 8
# Of an array: a step must not wait for the sum of a batch of pictures.
_MOST_NUMBERS = 2**14


def labels_of(batch: Any) -> Any:
    """The labels and weights of a batch; its inputs where it has none.

    Args:
        batch: As a generator yields it: inputs, or a tuple that begins with them.

    Example:
        >>> labels_of(("x", "y")), labels_of("x")
        (('y',), 'x')
    """
    return batch[1:] if isinstance(batch, tuple) and len(batch) > 1 else batch


def readable_parts(batch: Any) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The tensors of `labels_of(batch)` that Python can read, and those of the inputs beside them.

    Args:
        batch: As a data set yields it.
    """
    has_labels = labels_of(batch) is not batch
    return _readable(labels_of(batch)), _readable(batch[:1] if has_labels else ())


def _readable(part: Any) -> list[tf.Tensor]:
    leaves = tf.nest.flatten(part, expand_composites=True)
    return [leaf for leaf in leaves if leaf is not None and leaf.dtype not in (tf.variant, tf.resource)]


def after(leaf: Any) -> Any:
    """A part of a batch, which waits for what is noted of it; None where weights are not given."""
    return None if leaf is None else tf.identity(leaf)


def are_all_one(labels: Any) -> bool:
    """Whether labels tell no example from another: each array of them holds one number only.

    Args:
        labels: Arrays.

    Example:
        >>> import numpy as np
        >>> are_all_one([np.zeros(3), np.ones(3)]), are_all_one([np.arange(3)])
        (True, False)
    """
    return all(each.size and bool(np.all(each == each.flat[0])) for each in map(np.asarray, labels))


class SumsOfLabels:
    """Sums of the labels of several batches, by which workers tell whether they have had the same.

    Each of eight sums gives every label a sign, drawn by its place: labels in another order give other sums by about
    the root of the sum of their squares, however many there are, and rounding by the same share of it as of a label.
    Of an array of more than 16,384 labels it takes about as many, evenly spread.

    Example:
        >>> import numpy as np
        >>> from tfscale.cluster.passes import are_same_labels
        >>> labels = np.random.default_rng(1).integers(0, 10, 1000)
        >>> of_these, of_rounded, of_others = SumsOfLabels(), SumsOfLabels(), SumsOfLabels()
        >>> of_these.add(labels), of_rounded.add(labels * (1 + 1e-6)), of_others.add(labels[::-1])
        (None, None, None)
        >>> [are_same_labels(of_these.numbers, each.numbers) for each in (of_rounded, of_others)]
        [True, False]
    """

    def __init__(self) -> None:
        self._batches = 0
        # Of all batches; the last is that of their squares.
        self.numbers = np.zeros(_SUMS + 1)

    def add(self, labels: Any) -> None:
        """Adds those of the next batch.

        Args:
            labels: A structure of arrays or tensors, of numbers or strings.
        """
        self._batches += 1
        draw = np.random.default_rng(self._batches)
        for leaf in keras.tree.flatten(labels):
            array = np.asarray(leaf).ravel()
            array = array[:: max(len(array) // _MOST_NUMBERS, 1)]
            if array.dtype.kind in "OSU":
                array = np.array([zlib.crc32(repr(each).encode()) / 2**32 for each in array.tolist()])
            numbers = np.nan_to_num(array.astype(np.float64), posinf=1.0, neginf=-1.0)
            signs = 2 * draw.integers(0, 2, (_SUMS, len(numbers)), dtype=np.int8) - 1
            self.numbers += np.append(signs @ numbers, numbers @ numbers)


class SumsOfExamples:
    """`SumsOfLabels` of several batches; and of their inputs, as long as labels tell no example from another.

    A loss of the model's own, as of triplets or by CTC, often has zeros for labels.

    Example:
        >>> import numpy as np
        >>> sums = SumsOfExamples()
        >>> sums.add([np.zeros(4)], [np.arange(4.0)])
        >>> sums.are_of_inputs, float(sums.of_inputs[-1])
        (True, 14.0)
        >>> sums.add([np.arange(4)], [np.arange(4.0)])
        >>> sums.are_of_inputs, float(sums.of_inputs[-1])
        (False, 0.0)
    """

    def __init__(self) -> None:
        self._labels, self._inputs = SumsOfLabels(), SumsOfLabels()
        self.are_of_inputs = True
        """Whether the labels so far are all one number."""

    @property
    def of_labels(self) -> np.ndarray:
        """As `SumsOfLabels.numbers`."""
        return self._labels.numbers.copy()

    @property
    def of_inputs(self) -> np.ndarray:
        """Likewise; zeros where labels tell."""
        return self._inputs.numbers * self.are_of_inputs

    def add(self, labels: Any, inputs: Any) -> None:
        """Adds those of the next batch.

        Args:
            labels: A structure of arrays or tensors, of numbers or strings.
            inputs: Likewise.
        """
        self._labels.add(labels)
        self.are_of_inputs = self.are_of_inputs and are_all_one(keras.tree.flatten(labels))
        if self.are_of_inputs:
            self._inputs.add(inputs)


def worker_with_other_labels(strategy: tf.distribute.Strategy, sums: Any) -> int | None:
    """The first worker that has had other labels than the chief; None where all have had the same.

    Args:
        strategy: Of the job; every worker calls it.
        sums: This worker's, as `SumsOfLabels.numbers`.
    """
    return first_with_other_labels(gather_from_workers(strategy, tf.constant(sums)))


def first_with_other_labels(sums: Sequence[Any]) -> int | None:
    """The first worker that has had other labels than the chief; None where all have had the same.

    Args:
        sums: Of each worker, by rank, as `SumsOfLabels.numbers`.
    """
    chief, *others = sums
    return next((rank for rank, each in enumerate(others, 1) if not are_same_labels(chief, each)), None)
