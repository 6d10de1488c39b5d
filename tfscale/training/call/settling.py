"""What must be settled between the replicas before an epoch is validated and saved?"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import CommunicationError
from tfscale.gradients.double_buffer import buffer_of
from tfscale.gradients.optimizers import average_accumulators, flush_waiting
from tfscale.gradients.sending import Sending
from tfscale.gradients.updaters import accumulates, held_optimizers
from tfscale.recovery.one_call import with_callback
from tfscale.training.step.call_arguments import CallArguments


def settling_callbacks(
    model: keras.Model, strategy: tf.distribute.Strategy, sending: Sending
) -> list[keras.callbacks.Callback]:
    """Returns what has to come before all other callbacks of `fit`.

    Args:
        model: Prepared.
        strategy: Its strategy.
        sending: How its gradients travel.
    """
    if strategy.num_replicas_in_sync == 1:
        return []
    optimizer = model.optimizer if model.compiled else None
    averaging = [AverageAccumulators(strategy)] if optimizer and accumulates(optimizer) else []
    return [*averaging, *([FlushWaiting()] if sending.double_buffering else [])]


def settle_first(given: CallArguments, model: keras.Model, strategy: tf.distribute.Strategy, sending: Sending) -> None:
    """Puts the callbacks before those of the user that make state equal on all replicas for them to save.

    Args:
        given: Arguments of `fit`; its callbacks are replaced.
        model: Prepared.
        strategy: Its strategy.
        sending: How its gradients travel.

    Raises:
        CommunicationError: When they cannot be put there, and double buffering needs them.
    """
    added = settling_callbacks(model, strategy, sending)
    if added and not given.can_take("callbacks"):
        if sending.double_buffering:
            raise CommunicationError(
                "`double_buffering` makes the last update of an epoch by a callback.\n"
                f"Received: a {type(model).__name__}, whose own `fit` has no argument `callbacks`. "
                "Give it one, or leave `double_buffering` out."
            )
        return
    for callback in reversed(added):
        # A `CallbackList` of the user's own would not.
        callback.set_model(model)
        given["callbacks"] = with_callback(given.get("callbacks"), callback, first=True)


class AverageAccumulators(keras.callbacks.Callback):
    """Makes the accumulated gradients of an unfinished update equal on all replicas, before an epoch is saved.

    Once per epoch, because it sends as much as an update.

    Args:
        strategy: Of the model.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        super().__init__()
        self._strategy = strategy

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Averages them."""
        del epoch, logs
        average = functools.partial(average_accumulators, self.model.optimizer)
        tf.function(lambda: self._strategy.run(average), autograph=False)()


class FlushWaiting(keras.callbacks.Callback):
    """Makes the update whose gradients wait for a next step: before the weights are validated, and before a save.

    Not in `on_train_end`, before which Keras puts the moving average in the place of the weights.
    """

    def on_train_begin(self, logs: Any = None) -> None:
        """Forgets what a `fit` has left that was interrupted."""
        del logs
        for optimizer in held_optimizers(self.model):
            buffer = buffer_of(optimizer)
            if buffer is not None:
                buffer.drop()

    def on_test_begin(self, logs: Any = None) -> None:
        """Makes the update."""
        del logs
        self._flush()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Makes the update, unless validation came before."""
        del epoch, logs
        self._flush()

    def _flush(self) -> None:
        for optimizer in held_optimizers(self.model):
            flush_waiting(optimizer)
