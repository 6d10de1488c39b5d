"""Do all replicas hold the same weights when an epoch has ended, whatever the user's code has done?

Of several workers each assigns to its own copies: a rate by the clock, or weights of a file that one of them has not,
and they train different models from then on. In one process an assignment goes to all copies of a weight, but in their
updates replicas may draw what others do not.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import DriftError
from tfscale.recovery.one_call import listed, with_callback
from tfscale.replicas.replica_batch import local_replicas
from tfscale.training.callbacks.drift_watch import DriftWatch
from tfscale.training.callbacks.stall_watch import StallWatch
from tfscale.training.step.call_arguments import CallArguments
from tfscale.training.step.checksums import checksums_here, checksums_of_replicas
from tfscale.training.step.drift import CHOSEN_TOLERANCE, TOLERANCE, find_drift

_log = logging.getLogger(__name__)


def compare_at_epoch_ends(
    given: CallArguments, model: keras.Model, strategy: tf.distribute.Strategy, *, refuses: bool = True
) -> None:
    """Puts the comparison behind the callbacks of `fit`, where there are several replicas.

    A `DriftWatch` looks at some steps only, and an epoch may have fewer; a larger tolerance of one holds here too.

    Args:
        given: Arguments of `fit`; its callbacks are replaced, if it takes any.
        model: Prepared.
        strategy: Its strategy.
        refuses: Whether `check` of `prepare` refuses steps; else replicas of one process that differ are warned of.
    """
    if strategy.num_replicas_in_sync == 1 or not given.can_take("callbacks"):
        return
    callbacks = given.get("callbacks")
    chosen = [each.tolerance for each in listed(callbacks) if isinstance(each, DriftWatch)]
    tolerance = max(TOLERANCE, *(float(each) for each in chosen if each != "auto"), 0.0)
    if not refuses and not local_replicas(strategy).on_several_workers:
        tolerance = math.inf
    CHOSEN_TOLERANCE.set(model, tolerance)
    callback = EpochEnds(strategy, tolerance, [each for each in listed(callbacks) if isinstance(each, StallWatch)])
    # A `CallbackList` of the user's own would not.
    callback.set_model(model)
    given["callbacks"] = with_callback(callbacks, callback, first=False)


class EpochEnds(keras.callbacks.Callback):
    """Ends `fit` on all workers, by one number of each replica and epoch, when their weights are no longer equal.

    Args:
        strategy: Of the model.
        tolerance: The difference, relative to the largest value of the weight, up to which a warning is enough.
        watches: Those of this `fit` that say who has not arrived.

    Raises:
        DriftError: In `fit`, on every worker: weights differ by more. Less is warned of once.
    """

    several_steps_safe = True

    def __init__(self, strategy: tf.distribute.Strategy, tolerance: float, watches: Sequence[StallWatch] = ()):
        super().__init__()
        self._watches = watches
        self._strategy = strategy
        self._tolerance = tolerance
        self._has_warned = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Compares; not where this worker stops, perhaps in the midst of an epoch of the others."""
        del logs
        if self.model.stop_training:
            return
        drift = find_drift(self.model, self._checksums())
        if drift is None:
            return
        if drift.largest > self._tolerance:
            raise DriftError(
                "The weights of all replicas must be equal.\n"
                f"Received: at the end of epoch {epoch + 1}, {drift.said}. {self._look_for()} "
                "`DriftWatch` has a tolerance to choose."
            )
        if not self._has_warned:
            self._has_warned = True
            said = "The replicas differ by no more than the tolerance of %g: at the end of epoch %d, %s."
            _log.warning(said, self._tolerance, epoch + 1, drift.said)

    def _checksums(self) -> list[int]:
        if not local_replicas(self._strategy).on_several_workers:
            return checksums_here(self.model, self._strategy)
        with contextlib.ExitStack() as stack:
            for watch in self._watches:
                stack.enter_context(watch.waiting())
            return checksums_of_replicas(self.model, self._strategy)

    def _look_for(self) -> str:
        if local_replicas(self._strategy).on_several_workers:
            return (
                "Look for a callback that assigns weights or a learning rate by what is not the same on all workers: "
                "the clock, a file, the rank."
            )
        return (
            "Look for what is drawn where weights are updated, by a constraint, a schedule or an optimizer of yours, "
            "and draw it by `keras.random` with a `SeedGenerator`: then all replicas draw the same there."
        )
