"""Are the batches of two workers those of the same examples?

Their labels tell, which augmentation leaves alone.
"""

from __future__ import annotations

import zlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.replicas.agreement import gather_from_workers

# One alone agrees by chance about once in a thousand times.
_SUMS = 8
# Labels may have been computed, by predictions of a model, in another order of a sum on another worker.
_TOLERANCE = 1e-3
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


def inputs_of(batch: Any) -> Any:
    """The inputs of a batch that has labels; nothing where they are what `labels_of` returns.

    Args:
        batch: As `labels_of`.
    """
    return batch[:1] if isinstance(batch, tuple) and len(batch) > 1 else ()


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


def are_same_labels(numbers: Any, others: Any) -> bool:
    """Whether two `SumsOfLabels` are of the same labels, each up to a thousandth of itself; NaN is equal to all.

    Args:
        numbers: Of one worker, as `SumsOfLabels.numbers`.
        others: Of the other.
    """
    most = _TOLERANCE * max(numbers[-1], others[-1]) ** 0.5
    return not any(abs(a - b) > most for a, b in zip(numbers[:-1], others[:-1], strict=True))


def worker_with_other_labels(strategy: tf.distribute.Strategy, sums: Any) -> int | None:
    """The first worker that has had other labels than the chief; None where all have had the same.

    Args:
        strategy: Of the job; every worker calls it.
        sums: This worker's, as `SumsOfLabels.numbers`.
    """
    chief, *others = gather_from_workers(strategy, tf.constant(sums))
    return next((rank for rank, each in enumerate(others, 1) if not are_same_labels(chief, each)), None)


def seed_alike(what: str) -> str:
    """The way out of other batches on each worker, without its end.

    Args:
        what: Draws, in words.
    """
    return (
        f"Seed what {what} draws by, alike on all workers (`np.random.default_rng(3)`; `DataParallel(seed=)` seeds "
        "Python's and NumPy's own generators)"
    )
