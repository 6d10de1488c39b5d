"""Have all workers read the same batches from a Python generator, or a `PyDataset`?

Each runs one of its own and takes its rows of every batch. One that draws by what is not the same everywhere
gives each worker other batches: examples are repeated and lost. Their labels tell, which augmentation leaves alone.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfscale.data.labels import digest_of_labels, refuse_other_labels, seed_alike
from tfscale.errors import DataError
from tfscale.recovery.one_call import with_callback
from tfscale.replicas.agreement import least_of_workers, worker_unlike_chief
from tfscale.replicas.replica_batch import local_replicas
from tfscale.training.step.call_arguments import CallArguments


def compare_labels(given: CallArguments, strategy: tf.distribute.Strategy) -> None:
    """Has what `fit` is given compared, where there are several workers.

    All that a generator yields is noted; of a `PyDataset`, which orders itself anew between epochs, the first batch of
    an epoch is read once more.

    Args:
        given: Arguments of `fit`; its data and callbacks are replaced.
        strategy: Of the model.
    """
    data, replicas = given.get("x"), local_replicas(strategy)
    if replicas.here == replicas.total or not given.can_take("callbacks"):
        return
    callback: keras.callbacks.Callback
    if isinstance(data, types.GeneratorType):
        callback = LabelsRead(strategy, data.__name__)
        given["x"] = callback.noting(data)
    elif isinstance(data, keras.utils.PyDataset):
        callback = FirstLabelsRead(strategy, data)
    else:
        return
    given["callbacks"] = with_callback(given.get("callbacks"), callback, first=False)


class FirstLabelsRead(keras.callbacks.Callback):
    """Ends `fit` on all workers when the second epoch, the third, the fifth and so on begins with other labels on one.

    Args:
        strategy: Of the model.
        data: That has been compared before the first epoch.

    Raises:
        DataError: In `fit`, on every worker.
    """

    several_steps_safe = True

    def __init__(self, strategy: tf.distribute.Strategy, data: keras.utils.PyDataset):
        super().__init__()
        self._strategy, self._data = strategy, data
        self._epochs = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Compares the first batch, before Keras begins to read."""
        del epoch, logs
        begun, self._epochs = self._epochs, self._epochs + 1
        if begun and not begun & (begun - 1):
            refuse_other_labels(self._data, self._strategy, f"first batch of epoch {begun + 1}")


class LabelsRead(keras.callbacks.Callback):
    """Ends `fit` on all workers when they have read other labels: before the first step, or when an epoch has ended.

    Args:
        strategy: Of the model.
        name: Of the generator.

    Raises:
        DataError: In `fit`, on every worker.
    """

    several_steps_safe = True

    def __init__(self, strategy: tf.distribute.Strategy, name: str):
        super().__init__()
        self._strategy, self._name = strategy, name
        # After each batch, of all until then; how many of them were compared and left out.
        self._digests: list[int] = []
        self._left_out = 0

    def noting(self, data: Iterator[Any]) -> Iterator[Any]:
        """Yields what `data` does."""
        for batch in data:
            before = self._digests[-1] if self._digests else 0
            self._digests.append(digest_of_labels(batch, before))
            yield batch

    def on_train_begin(self, logs: Any = None) -> None:
        """Compares the first batch, which Keras has read to learn what there is."""
        del logs
        self._compare()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Compares all that every worker has read; not where this one stops, perhaps while the others go on."""
        del epoch, logs
        if not self.model.stop_training:
            self._compare()

    def _compare(self) -> None:
        # Some have read further ahead; a thread of TensorFlow's may be reading.
        read = self._left_out + len(self._digests)
        least = least_of_workers(self._strategy, read)
        if least > self._left_out + 1:
            del self._digests[: least - 1 - self._left_out]
            self._left_out = least - 1
        other = worker_unlike_chief(self._strategy, self._digests[0] if least else 0)
        if other is not None:
            raise DataError(
                "All workers must read the same batches from a generator: each takes its own rows of every batch.\n"
                f"Received: other labels on worker {other} than on worker 0 in the first {least} batch(es) of "
                f"{self._name!r}. {seed_alike('it')}, or give the examples to `dp.dataset(..., shuffle=True)`."
            )
