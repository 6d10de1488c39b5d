"""Which epoch and step is this worker in, for the others to know?"""

from __future__ import annotations

import zlib
from typing import Any

import keras

from tfscale.recovery.one_call import with_callback
from tfscale.replicas.peers import PeerWatch
from tfscale.training.step.call_arguments import CallArguments


class Placing(keras.callbacks.Callback):
    """Tells the watch over the workers what one call does.

    It has no `on_..._batch_end`: Keras would wait for each step's logs.

    Args:
        watch: Of this process.
    """

    several_steps_safe = True

    def __init__(self, watch: PeerWatch):
        super().__init__()
        self._watch = watch

    def on_train_begin(self, logs: Any = None) -> None:
        """Tells which model it is."""
        del logs
        # Shapes alone: names count the layers that a process has made.
        shapes = [tuple(weight.shape) for weight in self.model.weights]
        self._watch.know_model(zlib.crc32(repr(shapes).encode()))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Tells the epoch."""
        del logs
        self._watch.begin_epoch(epoch + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Tells that it has ended."""
        del epoch, logs
        self._watch.end_epoch()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Tells the step."""
        del logs
        self._watch.begin_batch(batch + 1)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Tells that there is one more batch."""
        del batch, logs
        self._watch.begin_batch()

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Likewise."""
        del batch, logs
        self._watch.begin_batch()


def place_call(watch: PeerWatch, given: CallArguments) -> None:
    """Gives the callback to a call, unless its callbacks are a `CallbackList` of the user's, which would keep it."""
    callbacks = given.get("callbacks")
    if given.can_take("callbacks") and not isinstance(callbacks, keras.callbacks.CallbackList):
        given["callbacks"] = with_callback(callbacks, Placing(watch), first=True)
