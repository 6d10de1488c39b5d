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

# A sum of labels alone would not tell another order of them.
_WEIGHTS = 8191
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


def sum_of_labels(labels: Any) -> tuple[float, float]:
    """A sum of labels, each with a weight by its place, and the same of their absolute values.

    Of an array of more than 65,536 it takes about as many, evenly spread.

    Args:
        labels: A structure of arrays or tensors, of numbers or strings.

    Example:
        >>> import numpy as np
        >>> sum_of_labels(np.array([1.0, -3.0]))
        (-5.0, 7.0)
    """
    total = size = 0.0
    for leaf in keras.tree.flatten(labels):
        array = np.asarray(leaf).ravel()
        array = array[:: max(len(array) // _MOST_NUMBERS, 1)]
        if array.dtype.kind in "OSU":
            array = np.array([zlib.crc32(repr(each).encode()) for each in array.tolist()])
        numbers = np.nan_to_num(array.astype(np.float64))
        weights = np.arange(len(numbers)) % _WEIGHTS + 1.0
        total += float(numbers @ weights)
        size += float(np.abs(numbers) @ weights)
    return total, size


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
