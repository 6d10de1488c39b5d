"""Are the replicas still copies of one model?"""

from __future__ import annotations

import logging
from typing import Any

import keras

from tfscale.errors import CallbackError, DriftError, ModelError
from tfscale.replicas.copied_ahead import on_gpus
from tfscale.training.step.checksums import ChecksumExchange, watch_checksums
from tfscale.training.step.drift import find_drift

_log = logging.getLogger(__name__)

# On GPUs, sparse gradients are added in any order: the copies of an embedding drift apart by rounding.
_GPU_TOLERANCE = 1e-3


class DriftWatch(keras.callbacks.Callback):
    """Stops the run, and names the replica, when the weights of the replicas are no longer equal.

    In the first step, and then once in `every_steps`, each replica makes one number of the bits of its weights before
    the step. The N numbers travel in the reduction that the step has anyway; in all other steps nothing is computed.
    When they differ, each weight is compared: the replica that is unlike most others is named, with its worker and its
    weights. Of two replicas, it cannot be told which one is right.

    Args:
        every_steps: Steps from one comparison to the next. With several steps per call, the last one of a call.
        tolerance: The difference, relative to the largest value of the weight, up to which a warning is enough;
            `"auto"` is 0 on CPUs and 0.001 on GPUs, which add sparse gradients in any order.

    Raises:
        DriftError: In `fit`, on every worker: weights differ.
        ModelError: In `fit`: the model is not prepared.
        CallbackError: `every_steps` is no positive integer, or the tolerance negative.

    Example:
        >>> import keras, numpy as np, tfscale
        >>> dp = tfscale.DataParallel(global_batch=4, devices=1)
        >>> with dp.scope():
        ...     model = dp.prepare(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
        ...     model.compile("sgd", "mse")
        >>> watch = tfscale.callbacks.DriftWatch(every_steps=50)
        >>> history = model.fit(np.ones((8, 1)), np.ones(8), verbose=0, callbacks=[watch])
    """

    several_steps_safe = True

    def __init__(self, every_steps: int = 100, *, tolerance: float | str = "auto"):
        super().__init__()
        if isinstance(every_steps, bool) or not isinstance(every_steps, int) or every_steps < 1:
            raise CallbackError(f"`every_steps` must be a positive integer.\nReceived: every_steps={every_steps!r}.")
        if tolerance != "auto" and (isinstance(tolerance, bool | str) or not tolerance >= 0):
            raise CallbackError(f'`tolerance` must be "auto", 0 or more.\nReceived: tolerance={tolerance!r}.')
        self._every_steps = every_steps
        self.tolerance = tolerance
        self._exchange: ChecksumExchange | None = None
        self._steps = self._first = self._next = 0
        self._is_due = self._has_warned = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Makes the step exchange checksums, once per model."""
        del logs
        self._steps, self._next = 0, 1
        self._exchange = None
        strategy = self.model.distribute_strategy
        if strategy is None or strategy.num_replicas_in_sync == 1:
            return
        self._exchange, is_new = watch_checksums(self.model, strategy)
        self._set_due(False)
        if is_new:
            self.model.make_train_function(force=True)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Says whether the steps of this call are to be looked at."""
        del logs
        self._first = batch
        if self._exchange is None:
            return
        # How many steps this call takes may not be known: `steps_per_execution` of `DataParallel` chooses on the way.
        is_due = self._steps + 1 >= self._next
        if is_due != self._is_due:
            self._set_due(is_due)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Compares; `batch` is the last of several steps that run in one call."""
        del logs
        self._steps += batch - self._first + 1
        if self._exchange is not None and self._is_due:
            self._set_due(False)
            self._next = (self._steps // self._every_steps + 1) * self._every_steps
            self._compare(self._exchange.read())

    def _set_due(self, is_due: bool) -> None:
        self._is_due = is_due
        if self._exchange is not None:
            self._exchange.is_due.assign(is_due)

    def _compare(self, checksums: list[int]) -> None:
        if not all(checksums):
            raise ModelError(
                "`DriftWatch` needs a prepared model: its step compares the weights.\n"
                f"Received: {self.model.name!r}, not prepared. Use `model = dp.prepare(model)`."
            )
        drift = find_drift(self.model, checksums)
        if drift is None:
            return
        tolerance = self.tolerance
        if tolerance == "auto":
            tolerance = _GPU_TOLERANCE if on_gpus(self.model.distribute_strategy) else 0.0
        if drift.largest > float(tolerance) or not tolerance:
            raise DriftError(
                f"The weights of all replicas must be equal.\n"
                f"Received: in step {self._steps} of this fit, {drift.said}. Look for code that assigns weights on one "
                f"replica alone, or for a faulty device; what was saved since the last comparison may be wrong."
            )
        if not self._has_warned:
            self._has_warned = True
            _log.warning("The replicas differ by no more than the tolerance of %g: %s.", tolerance, drift.said)
