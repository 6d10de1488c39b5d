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
from tfscale.framework.fit import restore_epoch
from tfscale.framework.optimizers import micro_step_counter
from tfscale.recovery.batch_change import change_batch, first_rates, rate_factors, read_rates
from tfscale.recovery.bits import changed_bits
from tfscale.recovery.carrying import SaveWatchers
from tfscale.recovery.counters import (
    check_states,
    read_callbacks,
    read_random_streams,
    restore_callbacks,
    restore_random_streams,
)
from tfscale.recovery.decision import Decision, Settings
from tfscale.recovery.directory import RunDirectory
from tfscale.recovery.fit_data import FitData
from tfscale.recovery.folder import Saved
from tfscale.recovery.identity import identify_optimizers
from tfscale.recovery.position import Position
from tfscale.recovery.shared_state import read_together
from tfscale.recovery.termination import EXIT_STATUS, Termination
from tfscale.recovery.values import put_in_arrays, take_out_arrays
from tfscale.recovery.variables import RunVariables
from tfscale.recovery.votes import Vote, Workers
from tfscale.replicas.deterministic import bits_of_run
from tfscale.replicas.failures import EndedTogetherError
from tfscale.replicas.replica_batch import LOGICAL_REPLICAS
from tfscale.replicas.undisturbed import undisturbed

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
        self._settings = self.settings = settings
        self._model = model
        self._strategy = strategy
        self._data = data
        self._callbacks = callbacks
        self._workers = Workers(strategy)
        self._directory = RunDirectory(settings)
        self._files = self._directory.files
        self._termination = Termination()
        self._watchers = SaveWatchers(callbacks)
        self._decision = Decision(settings, self._workers, self._termination, self._watchers.want_save)
        self._variables: Any = None
        self._resumed: Saved | None = None
        self._position = Position(data.initial_epoch, 0)
        self._rates: list[float | None] = []
        self._identity: dict[str, Any] = {}
        self._examples_offset = 0
        self._offset: int | None = None
        self._noted: dict[str, Any] | None = None
        self._waiting: list[Saved] | None = None
        self._saved_at: Position | None = None
        self.epochs = 0
        """Epochs that `fit` was asked for."""
        self.goes_on = False
        """Whether there was a state to go on from."""
        self.last_logs: dict[str, float] = {}
        """Those of the last step before a restart."""

    def begin(self) -> None:
        """Finds the newest checkpoint, if there is one, and takes up its state.

        Raises:
            RecoveryError: On every worker, when the directory is in use, holds another run, or none of its checkpoints
                can be read; and when what a callback's `get_state()` returns cannot be saved.
        """
        check_states(self._callbacks)
        self._variables = RunVariables(self._model, self._strategy)
        self._rates = first_rates(self._model)
        logical = {"logical replicas": LOGICAL_REPLICAS.of(self._model, 0)}
        self._identity = {**self._data.identity, **identify_optimizers(self._model), **logical}
        self._termination.start()
        start_s = time.perf_counter()
        run = (self._variables, self._identity, self._data.global_batch, self._watchers.bring_back)
        saved = read_together(self._workers, lambda: self._directory.begin(*run))
        if saved is None:
            self._data.start_at(self._position)
            self._examples_offset = self._examples_of_optimizer() - self._count_examples()
        else:
            self._refuse_second_fit(saved)
            self._stand_at(saved)
            if self._position.step and not self._finds_next_batch(saved):
                saved = self._begin_epoch_again(saved)
            else:
                self._noted = saved.facts.get("next")
            self._resumed = saved
            self.goes_on = self._position != Position(self._data.initial_epoch, 0)
            self._examples_offset = saved.facts["examples_offset"]
            self._decision.start(saved.facts["steps"])
            self._restore(saved)
            is_over = saved.facts["stopped"] or self._position.epoch >= self.epochs
            # The loop of `fit` is empty where it begins with the last epoch or later.
            restore_epoch(self._model, max(self._position.epoch, self.epochs if is_over else 0))
            self._tell_where_it_goes_on(saved, time.perf_counter() - start_s, is_over=is_over)
        self._tell_what_cannot_be()

    def begin_epoch(self, epoch: int) -> None:
        """Takes up the state once more in the middle of an epoch: Keras and other callbacks have begun it anew."""
        if self._resumed is not None and self._position.step:
            self._restore(self._resumed)
        else:
            self._position = Position(epoch, 0)
        self._resumed = None
        self._offset = None
        self._decision.begin_epoch()

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
        if self._noted is not None:
            self._compare_start(self._noted)
        if self._waiting is not None:
            self._write(self._waiting)
        is_first = self._saved_at is None and self._position.step == 0
        if can_save and (stop or self._decision.is_due or is_first) and self._saved_at != self._position:
            self._save()
        if stop:
            self._end(is_saved=can_save)

    def end_epoch(self, epoch: int) -> None:
        """Saves what is due, and always after the last epoch."""
        steps = self._data.steps_per_epoch or self._position.step
        self._decision.count(max(steps - self._position.step, 0))
        self._position = Position(epoch + 1, 0)
        self._data.end_epoch(self._position)
        is_last = epoch + 1 >= self.epochs or self._model.stop_training
        stop = self._decision.vote_at_end(
            is_writing=self._files.is_writing,
            next_steps=self._data.steps_per_epoch,
            starts_matter=self._data.can_begin_within_epoch and not is_last,
        )
        if stop or is_last or self._decision.is_due:
            self._save(can_wait=not (stop or is_last))
        if stop:
            self._end(is_saved=True)

    def end(self) -> None:
        """Notes that the run is complete."""
        self._write_waiting()
        self._files.wait()
        _ENDED.add(str(self._settings.directory.resolve()))

    def close(self) -> None:
        """Lets go of signals, threads and the model, however `fit` has ended."""
        self._termination.stop()
        try:
            # No other run may come in before a save has ended; who presses Ctrl-C twice does not wait for it.
            with undisturbed():
                self._write_waiting()
                self._files.wait()
        finally:
            self._directory.release()
            restore_epoch(self._model, None)

    def _stand_at(self, saved: Saved) -> None:
        facts = saved.facts
        self._position = self._saved_at = self._data.convert(Position(*facts["position"]), facts["global_batch"])
        self._data.restore(facts["data"])
        self._data.start_at(self._position)

    def _finds_next_batch(self, saved: Saved) -> bool:
        """Whether the batch at this position is the one that it was when the state was saved; the chief judges."""
        if not self._data.can_begin_within_epoch:
            return False
        if "next" not in saved.facts:
            # Written by a version that noted nothing.
            return True
        judge = self._data.goes_on_with(self._position, saved.facts["next"])
        # One that says no suffices, and only the chief does.
        differs = self._workers.is_chief and not judge()
        return not self._workers.agree(Vote(stop=differs, save=False, next_agreement=1)).stop

    def _begin_epoch_again(self, saved: Saved) -> Saved:
        """Stands at the begin of the epoch in the midst of which `saved` was, and returns the state of there."""
        epoch, step = self._position.epoch, self._position.step
        start = read_together(self._workers, lambda: self._files.read_start(epoch))
        if start is None:
            raise RecoveryError(
                "In the midst of an epoch a run goes on with the batch that comes next.\n"
                f"Received: {saved.path}, of epoch {epoch + 1} after {step} of its steps, behind which comes another "
                f"batch now, and no state of the start of an epoch can be read. Delete the directory to begin anew, or "
                "give this run one of its own."
            )
        self._stand_at(start)
        first = self._position.epoch
        if self._workers.is_chief:
            _log.warning(
                "%s begun again: behind step %d of epoch %d comes another batch than when the state was saved, so that "
                "examples would be left out and others come twice. Data or their order are not the same in another "
                "process: give shuffles and generators a seed, or use dp.dataset(..., shuffle=True).",
                f"epoch {epoch + 1} is" if first == epoch else f"epochs {first + 1} to {epoch + 1} are",
                step,
                epoch + 1,
            )
        return start

    def _compare_start(self, noted: dict[str, Any]) -> None:
        """Says where an epoch begins with another order than it would have had without a restart."""
        self._noted = None
        if not self._data.can_begin_within_epoch or self._position.step:
            return
        judge = self._data.finds_next_batch(self._position, noted)
        if self._workers.is_chief and not judge():
            _log.warning(
                "epoch %d begins with another batch than it would have without a restart: its order is another one. "
                "All of its examples come once.",
                self._position.epoch + 1,
            )

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

    def _save(self, *, can_wait: bool = False) -> None:
        """Saves, at once or, where it `can_wait`, as soon as the first batch of the next epoch is known."""
        start_s = time.perf_counter()
        sums = self._variables.settle()
        self._waiting = []
        if self._workers.is_chief:
            others: list[np.ndarray] = []
            states = {"callbacks": read_callbacks(self._callbacks), "random": read_random_streams()}
            states = take_out_arrays(states, others)
            arrays = [*self._variables.read(sums), *others]
            self._waiting = [Saved(self._facts(states, arrays), arrays)]
        self._saved_at = self._position
        if not can_wait:
            self._write(self._waiting)
        # Who watches saves has been waited for already, unless it is done later.
        writing_s = 0.0 if self._watchers and not can_wait else self._files.write_s or 0.0
        self._decision.saved(time.perf_counter() - start_s + writing_s)

    def _write(self, waiting: list[Saved]) -> None:
        """Has the chief write a state, with a note of the batch that comes next; called on all workers."""
        self._waiting = None
        note = self._data.note_next_batch(self._position)
        for saved in waiting:
            if self._files.is_writing:
                self._decision.tell_slow("the one before has not ended")
            # Behind the first batch, since it begins a pass.
            facts = {**saved.facts, "data": self._data.describe()}
            is_start = self._data.can_begin_within_epoch and self._position.step == 0
            self._files.write(Saved(facts, saved.arrays), more_facts=lambda: {"next": note()}, is_start=is_start)
        if self._watchers:
            self._files.wait()
            is_here = self._workers.is_chief and self._files.failure is None
            self._watchers.tell(self._settings.directory if is_here else None, self._decision.steps)

    def _write_waiting(self) -> None:
        """Writes what was to wait for an epoch that does not come any more."""
        waiting, self._waiting = self._waiting, None
        for saved in waiting or ():
            self._files.write(saved, is_start=self._data.can_begin_within_epoch)

    def _facts(self, states: Any, arrays: Sequence[np.ndarray]) -> dict[str, Any]:
        return {
            "format": 2,
            "run": self._identity,
            "bits": bits_of_run(self._model, self._strategy),
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
        raise EndedTogetherError(EXIT_STATUS)

    def _count_examples(self) -> int:
        return self._data.count_examples(self._position)

    def _examples_of_optimizer(self) -> int:
        """Those of the steps that the optimizer has made before this run."""
        optimizer = self._model.optimizer
        steps = int(keras.ops.convert_to_numpy(micro_step_counter(optimizer))) if optimizer else 0
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
        if changed := changed_bits(facts.get("bits"), bits_of_run(self._model, self._strategy)):
            _log.warning("The run goes on with other bits than it would have had: %s.", "; ".join(changed))

    def _tell_what_cannot_be(self) -> None:
        if self._workers.is_chief and not self._data.can_begin_within_epoch:
            _log.warning(
                "These data have an order that a restart cannot have again: the state is saved after epochs only. "
                "dp.dataset(..., shuffle=True) can begin at any step."
            )
