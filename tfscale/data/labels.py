"""Are the batches of two workers those of the same examples?

Their labels tell, which augmentation leaves alone.
"""

from __future__ import annotations

import contextlib
import zlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.data.drawing import drawing_again
from tfscale.errors import DataError
from tfscale.replicas.agreement import worker_unlike_chief

# One alone agrees by chance about once in a thousand times.
_SUMS = 8
# Labels may have been computed, by predictions of a model, in another order of a sum on another worker.
_TOLERANCE = 1e-3
# Of an array: a step must not wait for the sum of a batch of pictures.
_MOST_NUMBERS = 2**16


def digest_of_labels(batch: Any, before: int = 0) -> int:
    """A checksum of the labels and weights of a batch; of its inputs where it has none.

    Args:
        batch: As a generator yields it: inputs, or a tuple that begins with them.
        before: The checksum of the batches before.

    Example:
        >>> import numpy as np
        >>> x, y = np.zeros((2, 3)), np.arange(2)
        >>> [digest_of_labels((x, y)) == digest_of_labels(other) for other in ((x + 1, y), (x, -y))]
        [True, False]
    """
    labels = batch[1:] if isinstance(batch, tuple) and len(batch) > 1 else batch
    digest = before
    for leaf in keras.tree.flatten(labels):
        array = np.asarray(leaf)
        content = repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
        digest = zlib.crc32(content, digest)
    return digest


class SumsOfLabels:
    """Sums of the labels of several batches, by which workers tell whether they have had the same.

    Each of eight sums gives every label a sign, drawn by its place: labels in another order give other sums by about
    the root of the sum of their squares, however many there are, and rounding by the same share of it as of a label.
    Of an array of more than 65,536 labels it takes about as many, evenly spread.

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
                array = np.array([zlib.crc32(repr(each).encode()) for each in array.tolist()])
            numbers = np.nan_to_num(array.astype(np.float64), posinf=1.0, neginf=-1.0)
            signs = 2 * draw.integers(0, 2, (_SUMS, len(numbers)), dtype=np.int8) - 1
            self.numbers += np.append(signs @ numbers, numbers @ numbers)


def are_same_labels(numbers: Any, others: Any) -> bool:
    """Whether two `SumsOfLabels` are of the same labels, each up to a thousandth of itself.

    Args:
        numbers: Of one worker, as `SumsOfLabels.numbers`.
        others: Of the other.
    """
    most = _TOLERANCE * max(numbers[-1], others[-1]) ** 0.5
    return all(abs(a - b) <= most for a, b in zip(numbers[:-1], others[:-1], strict=True))


def seed_alike(what: str) -> str:
    """The way out of other batches on each worker, without its end.

    Args:
        what: Draws, in words.
    """
    return (
        f"Seed what {what} draws by, alike on all workers (`np.random.default_rng(3)`; `DataParallel(seed=)` seeds "
        "Python's and NumPy's own generators)"
    )


def refuse_other_labels(
    data: keras.utils.PyDataset, strategy: tf.distribute.Strategy, batch: str = "first batch"
) -> None:
    """Refuses one that puts its examples in an order of its own, by the clock or the rank; every worker calls it.

    Args:
        data: Whose first batch is compared, before an epoch reads it.
        strategy: Of the job.
        batch: Which one that is.

    Raises:
        DataError: On every worker, when it has other labels on one.
    """
    digest = 0
    # What fails here fails again where Keras reads it.
    with drawing_again(data), contextlib.suppress(Exception):
        digest = digest_of_labels(data[0])
    other = worker_unlike_chief(strategy, digest)
    if other is not None:
        raise DataError(
            "All workers must read the data in one order: each takes its own rows of every batch.\n"
            f"Received: other labels in the {batch} of a {type(data).__name__} on worker {other} than on worker 0. "
            f"{seed_alike('it')}, or give the data to `dp.dataset(..., shuffle=True)`."
        )
