"""In which step, on which replica and with which rows was a loss first not finite?"""

from __future__ import annotations

import logging
from typing import Any

from tfscale.errors import CallbackError, ModelError, NonFiniteError
from tfscale.recovery.one_call import ClosedByFit
from tfscale.replicas.replica_batch import local_replicas, worker_rank
from tfscale.training.step.non_finite import REPORT, SKIP, STOP, LossExchange, exchange_of, watch_losses
from tfscale.training.step.non_finite_notes import NonFiniteStep, Note, first_of

_log = logging.getLogger(__name__)

_LEVELS = {"report": REPORT, "skip": SKIP, "stop": STOP}


class NonFiniteWatch(ClosedByFit):
    """Names the first step whose loss is infinite or not a number, the replica, and its rows of the global batch.

    Each replica notes it by itself, and the notes travel in the reduction that the step has anyway. With `"stop"` and
    `"skip"` one more number travels, and neither weights, optimizer, metrics nor moving averages keep anything of such
    a step, on any replica; steps of the same call that follow one that stops are not made either. They look at
    gradients too, which may be infinite where the loss is not, unless a `LossScaleOptimizer` does. `"report"` changes
    nothing: what it has found in one step is in the weights of the next.

    Of a `train_step` of one's own, the logs with "loss" in their names are looked at, or all of them if there is none.
    To leave out such a step, a copy of all weights is kept while it is made, and so it is with `double_buffering`; what
    Python has counted in it stays counted. Of several of these callbacks the strictest acts.

    Args:
        action: `"stop"` ends `fit` with an error, `"skip"` leaves the step out and goes on, `"report"` says it once and
            goes on.
        most_lines: Lines of the log about steps that were left out; those that follow are counted.

    Raises:
        NonFiniteError: In `fit`, on every worker: a loss or gradient is not finite, with `"stop"`.
        ModelError: In `fit`: the model is not prepared.
        CallbackError: `action` is none of the three, or `most_lines` is no positive integer.

    Example:
        >>> import keras, numpy as np, tfscale
        >>> dp = tfscale.DataParallel(global_batch=4, devices=1)
        >>> with dp.scope():
        ...     model = dp.prepare(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
        ...     model.compile("sgd", "mse")
        >>> labels = np.array([1.0, 1.0, 1.0, 1.0, 1.0, np.nan, 1.0, 1.0])
        >>> watch = tfscale.callbacks.NonFiniteWatch("skip")
        >>> history = model.fit(np.ones((8, 1)), labels, shuffle=False, verbose=0, callbacks=[watch])
        >>> [(found.epoch, found.step, found.where[0].first_row, found.where[0].num_rows) for found in watch.found]
        [(1, 2, 0, 4)]
        >>> watch.num_left_out, bool(np.isfinite(history.history["loss"][0]))
        (1, True)
    """

    several_steps_safe = True

    def __init__(self, action: str = "stop", *, most_lines: int = 5):
        super().__init__()
        if not isinstance(action, str) or action not in _LEVELS:
            raise CallbackError(f'`action` must be "stop", "skip" or "report".\nReceived: action={action!r}.')
        if isinstance(most_lines, bool) or not isinstance(most_lines, int) or most_lines < 1:
            raise CallbackError(f"`most_lines` must be a positive integer.\nReceived: most_lines={most_lines!r}.")
        self._level = _LEVELS[action]
        self._most_lines = most_lines
        self._is_watching = False
        self._epoch = 0
        self._begins_epoch = True
        self._counts: list[int] = []
        self.found: list[NonFiniteStep] = []
        """The first of `fit`; with `"skip"` of each call of the step, at most `most_lines`."""
        self.num_left_out = 0
        """Steps of this `fit` that were left out."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Makes the step look at its loss, once per model."""
        del logs
        self.found, self.num_left_out, self._counts = [], 0, []
        strategy = self.model.distribute_strategy
        if strategy is None:
            raise self._not_prepared()
        self._is_watching = True
        if watch_losses(self.model, strategy, self._level):
            self.model.make_train_function(force=True)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Counts steps anew."""
        del logs
        self._epoch, self._begins_epoch = epoch + 1, True

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Says where in the epoch its steps begin."""
        del logs
        if self._begins_epoch:
            self._begins_epoch = False
            exchange = exchange_of(self.model)
            if exchange is not None:
                exchange.begin_epoch(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Looks at what was noted; `batch` is the last of several steps that run in one call."""
        del batch, logs
        exchange = exchange_of(self.model)
        if exchange is None or exchange.level != self._level:
            return
        notes = exchange.read()
        if notes is None:
            return
        if not notes[0].steps:
            raise self._not_prepared()
        replicas = local_replicas(exchange.strategy)
        found = first_of(notes, epoch=self._epoch, replicas_per_worker=replicas.here)
        if found is not None:
            self._act(exchange, found, notes)

    def on_train_end(self, logs: Any = None) -> None:
        """Says how often, if it was more than once."""
        del logs
        if self._speaks() and sum(self._counts) > len(self.found):
            shown = ", ".join(f"replica {replica}: {count}" for replica, count in enumerate(self._counts) if count)
            _log.warning("Steps of this fit with a loss that is not finite: %s.", shown)
        if self._speaks() and self.num_left_out:
            _log.warning("Of this fit %d steps were left out, because a loss was not finite.", self.num_left_out)
        self.close()

    def close(self) -> None:
        """Lets later steps be made as if nobody watched; a prepared model's `fit` calls it when it fails, too."""
        exchange = exchange_of(self.model) if self._is_watching else None
        if exchange is not None:
            exchange.end()
        self._is_watching = False

    def _act(self, exchange: LossExchange, found: NonFiniteStep, notes: list[Note]) -> None:
        if self._level == STOP:
            self.found.append(found)
            raise NonFiniteError(
                "The loss of every step, and its gradients, must be finite.\n"
                f"Received: {found}. The weights are those of before this step. Look at these rows, at the learning "
                'rate and at divisions and logarithms in the loss; `NonFiniteWatch("skip")` leaves such steps out.'
            )
        if self._level == REPORT:
            self._counts = [int(note.num_found) for note in notes]
            if not self.found:
                self.found.append(found)
                self._say("%s. Training goes on.", found)
            return
        exchange.forget()
        self.num_left_out, before = exchange.left_out(), self.num_left_out
        if len(self.found) >= self._most_lines:
            return
        self.found.append(found)
        more = self.num_left_out - before - 1
        others = f", with {more} more of the steps up to {int(notes[0].steps)}" if more else ""
        last = " Further ones are counted, and not said." if len(self.found) == self._most_lines else ""
        self._say("%s. The step is left out%s.%s", found, others, last)

    def _say(self, text: str, *args: Any) -> None:
        if self._speaks():
            _log.warning(text, *args)

    def _speaks(self) -> bool:
        """The chief speaks for all."""
        strategy = self.model.distribute_strategy
        return strategy is None or worker_rank(strategy) == 0

    def _not_prepared(self) -> ModelError:
        return ModelError(
            "`NonFiniteWatch` needs a prepared model: its step looks at the loss.\n"
            f"Received: {self.model.name!r}, not prepared. Use `model = dp.prepare(model)`."
        )
