"""What does recovery do in the course of one `fit`?"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.errors import RecoveryError
from tfscale.training import _fit_private, _tf_private
from tfscale.training.recovery.batch_change import change_batch, first_rates, rate_factors, read_rates
from tfscale.training.recovery.counters import (
    check_states,
    read_callbacks,
    read_random_streams,
    restore_callbacks,
    restore_random_streams,
)
from tfscale.training.recovery.decision import Decision, Settings
from tfscale.training.recovery.files import Saved, StateFiles
from tfscale.training.recovery.fit_data import FitData
from tfscale.training.recovery.position import Position
from tfscale.training.recovery.termination import EXIT_STATUS, Termination
from tfscale.training.recovery.values import put_in_arrays, take_out_arrays
from tfscale.training.recovery.variables import RunVariables
from tfscale.training.recovery.votes import Vote, Workers

_log = logging.getLogger(__name__)

# Directories of runs that this process has ended.
_ENDED: set[str] = set()


class RecoveryRun:
    """One `fit` that can be continued.

    Args:
        settings: What the user asked for.
        model: Prepared, and given to `fit`.
        strategy: Of the job.
        data: What is trained on.
        callbacks: All of them, whose counters belong to the state.
    """

    def __init__(
        self,
        settings: Settings,
        model: keras.Model,
        *,
        strategy: tf.distribute.Strategy,
        data: FitData,
        callbacks: Sequence[keras.callbacks.Callback],
    ):
        self._settings = settings
        self._model = model
        self._strategy = strategy
        self._data = data
        self._callbacks = callbacks
        self._workers = Workers(strategy)
        self._files = StateFiles(settings.directory, settings.keep)
        self._termination = Termination()
        self._decision = Decision(settings, self._workers, self._termination)
        self._variables: Any = None
        self._resumed: Saved | None = None
        self._position = Position(data.initial_epoch, 0)
        self._rates: list[float | None] = []
        self._examples_offset = 0
        self._offset: int | None = None
        self.epochs = 0
        """Epochs that `fit` was asked for."""
        self.last_logs: dict[str, float] = {}
        """Those of the last step before a restart."""

    def begin(self) -> None:
        """Finds the newest checkpoint, if there is one, and takes up its state.

        Raises:
            RecoveryError: On every worker, when it is one of another model, or none can be read; and when what a
                callback's `get_state()` returns cannot be saved.
        """
        check_states(self._callbacks)
        self._variables = RunVariables(self._model, self._strategy)
        self._rates = first_rates(self._model)
        self._termination.start()
        start_s = time.perf_counter()
        saved = self._read()
        if saved is None:
            self._examples_offset = self._examples_of_optimizer() - self._count_examples()
        else:
            self._resumed = saved
            self._refuse_second_fit(saved)
            facts = saved.facts
            self._position = self._data.convert(Position(*facts["position"]), facts["global_batch"])
            self._examples_offset = facts["examples_offset"]
            self._decision.start(facts["steps"])
            self._data.restore(facts["data"])
            self._restore(saved)
            is_over = facts["stopped"] or self._position.epoch >= self.epochs
            # The loop of `fit` is empty where it begins with the last epoch or later.
            _fit_private.restore_epoch(self._model, max(self._position.epoch, self.epochs if is_over else 0))
            self._tell_where_it_goes_on(saved, time.perf_counter() - start_s, is_over=is_over)
        self._data.start_at(self._position)
        self._tell_what_cannot_be()

    def begin_epoch(self, epoch: int) -> None:
        """Takes up the state once more in the middle of an epoch: Keras and other callbacks have begun it anew."""
        if self._resumed is not None and self._position.step:
            self._restore(self._resumed)
        else:
            self._position = Position(epoch, 0)
        self._resumed = None
        self._offset = None

    def before_call(self, step: int) -> None:
        """Saves, or ends, where all workers agree to.

        Args:
            step: The first one of the call that comes next, as Keras counts: where a former run took other steps per
                call, it begins with another number than was reached.
        """
        if self._offset is None:
            self._offset = self._position.step - step
        done = step + self._offset - self._position.step
        self._position = Position(self._position.epoch, self._position.step + done)
        self._decision.count(done)
        stop = self._decision.vote(is_writing=self._files.is_writing)
        can_save = self._data.can_begin_within_epoch
        if can_save and (stop or self._decision.is_due):
            self._save()
        if stop:
            self._end(is_saved=can_save)

    def end_epoch(self, epoch: int) -> None:
        """Saves what is due, and always after the last epoch."""
        steps = self._data.steps_per_epoch or self._position.step
        self._decision.count(max(steps - self._position.step, 0))
        self._position = Position(epoch + 1, 0)
        stop = self._decision.vote(is_writing=self._files.is_writing)
        is_last = epoch + 1 >= self.epochs or self._model.stop_training
        if stop or is_last or self._decision.is_due:
            self._save()
        if stop:
            self._end(is_saved=True)

    def end(self) -> None:
        """Notes that the run is complete."""
        self._files.wait()
        _ENDED.add(str(self._settings.directory.resolve()))

    def close(self) -> None:
        """Lets go of signals, threads and the model, however `fit` has ended."""
        self._termination.stop()
        self._files.wait()
        _fit_private.restore_epoch(self._model, None)

    def _read(self) -> Saved | None:
        """The newest state, read by the chief alone: others may have another disk."""
        saved, refusal = None, None
        if self._workers.is_chief:
            try:
                saved = self._files.read_newest()
            except RecoveryError as error:
                refusal = str(error)
        facts, path, refusal = self._workers.from_chief([saved and saved.facts, saved and saved.path, refusal])
        if refusal is not None:
            raise RecoveryError(refusal)
        if facts is None:
            return None
        self._variables.check(facts["variables"], path)
        arrays = saved.arrays if saved else [_zeros(*described) for described in facts["arrays"]]
        return Saved(facts, self._workers.arrays_from_chief(arrays), path)

    def _restore(self, saved: Saved) -> None:
        facts = saved.facts
        count = len(facts["variables"])
        values, others = list(saved.arrays[:count]), list(saved.arrays[count:])
        self._variables.assign(values)
        self.last_logs = self._variables.logs(values)
        if facts["global_batch"] != self._data.global_batch and self._data.global_batch:
            change_batch(
                self._model,
                examples_seen=facts["examples_seen"],
                new_batch=self._data.global_batch,
                rates=facts["rates"],
                factors=rate_factors(facts["first_rates"], self._rates),
            )
        states = put_in_arrays(facts["states"], others)
        restore_callbacks(self._callbacks, states["callbacks"])
        restore_random_streams(states["random"])

    def _save(self) -> None:
        start_s = time.perf_counter()
        sums = self._variables.settle()
        if self._workers.is_chief:
            others: list[np.ndarray] = []
            states = {"callbacks": read_callbacks(self._callbacks), "random": read_random_streams()}
            states = take_out_arrays(states, others)
            arrays = [*self._variables.read(sums), *others]
            self._files.write(Saved(self._facts(states, arrays), arrays))
        self._decision.saved(time.perf_counter() - start_s + (self._files.write_s or 0.0))

    def _facts(self, states: Any, arrays: Sequence[np.ndarray]) -> dict[str, Any]:
        return {
            "format": 1,
            "position": [self._position.epoch, self._position.step],
            "steps": self._decision.steps,
            "stopped": bool(self._model.stop_training),
            "num_replicas": self._strategy.num_replicas_in_sync,
            "global_batch": self._data.global_batch,
            "examples_offset": self._examples_offset,
            "examples_seen": self._examples_offset + self._count_examples(),
            "first_rates": self._rates,
            "rates": read_rates(self._model),
            "data": self._data.describe(),
            "states": states,
            "variables": self._variables.describe(),
            "arrays": [[list(array.shape), array.dtype.name] for array in arrays],
        }

    def _end(self, *, is_saved: bool) -> None:
        """Ends this process, when all have come here and the chief has written."""
        self._termination.reached()
        self._files.wait()
        # A worker that ends at once would take the others' connections with it.
        self._workers.agree(Vote(stop=True, save=False, next_agreement=1))
        epoch, step = self._position.epoch, self._position.step
        if not is_saved:
            _log.warning("SIGTERM in epoch %d: its data have no order to go on with, it will begin anew.", epoch + 1)
        elif self._files.failure is None:
            _log.warning("SIGTERM: saved in epoch %d after %d of its steps; start again to go on.", epoch + 1, step)
        raise SystemExit(EXIT_STATUS)

    def _count_examples(self) -> int:
        return self._data.count_examples(self._position)

    def _examples_of_optimizer(self) -> int:
        """Those of the steps that the optimizer has made before this run."""
        optimizer = self._model.optimizer
        steps = int(keras.ops.convert_to_numpy(_tf_private.micro_step_counter(optimizer))) if optimizer else 0
        return steps * (self._data.global_batch or 0)

    def _refuse_second_fit(self, saved: Saved) -> None:
        directory = str(self._settings.directory.resolve())
        if directory in _ENDED and saved.facts["position"][0] >= self.epochs:
            raise RecoveryError(
                "A directory holds one run of `fit`.\n"
                f"Received: a second `fit`, in the directory {directory!r} of one that has made its "
                f"{self.epochs} epochs. Give it a directory of its own, or more epochs."
            )

    def _tell_where_it_goes_on(self, saved: Saved, seconds: float, *, is_over: bool) -> None:
        if not self._workers.is_chief:
            return
        facts, position = saved.facts, self._position
        if is_over:
            _log.warning("The run in %s is complete: nothing is trained.", self._settings.directory)
        _log.info(
            "goes on in epoch %d after %d of its steps, from %s; read in %.1f s.",
            position.epoch + 1,
            position.step,
            saved.path,
            seconds,
        )
        new = (self._strategy.num_replicas_in_sync, self._data.global_batch)
        old = (facts["num_replicas"], facts["global_batch"])
        if new != old:
            _log.info("replicas: %d -> %d; global batch: %s -> %s.", old[0], new[0], old[1], new[1])
        if new[1] != old[1]:
            _log.info("step of the epoch: %d -> %d.", facts["position"][1], position.step)

    def _tell_what_cannot_be(self) -> None:
        if self._workers.is_chief and not self._data.can_begin_within_epoch:
            _log.warning(
                "These data have an order that a restart cannot have again: the state is saved after epochs only. "
                "dp.dataset(..., shuffle=True) can begin at any step."
            )


def _zeros(shape: Sequence[int], dtype: str) -> np.ndarray:
    return np.zeros(shape, tf.as_dtype(dtype).as_numpy_dtype)
