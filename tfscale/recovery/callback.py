"""How does a run go on where another was killed?"""

from __future__ import annotations

import os
from collections.abc import MutableMapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import RecoveryError
from tfscale.recovery.chief_only import inner_callback
from tfscale.recovery.decision import Settings
from tfscale.recovery.fit_data import FitData
from tfscale.recovery.interval import check_interval
from tfscale.recovery.location import find_directory
from tfscale.recovery.run import RecoveryRun
from tfscale.replicas.agreement import gather_number


class Recovery(keras.callbacks.Callback):
    """Saves the whole state of a run now and then, and lets `fit` go on from there, at the very step.

    Start the same script again, on the same number of replicas or another: it ends with the weights, the logs and the
    `History` of a run that was never interrupted. With a `global_batch` that stays, nothing else changes. Where the
    batch grows with the replicas, what is counted in steps goes on from the examples seen.

    Saved are weights, the optimizer, metrics in the middle of an epoch, the position in the data and their order, the
    random generators of the model, of Keras, NumPy and Python, `History`, the counters of Keras's callbacks, and what
    callbacks of one's own return from `get_state()`, to be given to their `set_state(state)`. The chief writes, off the
    training thread; all workers save at the same step. On SIGTERM the state is saved and the process exits with 143.

    `dp.dataset` can begin at any step. So can arrays with `shuffle=False` and a `tf.data.Dataset`, whose batches are
    skipped, also one with a seeded `shuffle`: epoch k has the order of epoch k. With each state a digest of the batch
    that comes next is saved. Where another one comes after a restart (a generator that draws, `sample_from_datasets`,
    an operation such as `tf.random.normal`, files that changed), the epoch is begun again from the state at its start,
    and a warning names it. Of data that have no order to be had again (a `shuffle` without any seed, arrays that Keras
    shuffles, a `PyDataset`, a generator) the state is saved after epochs only, and the log says so.

    The directory is locked by the process that uses it; in a store it has a lease, which is no lock but does most of
    one's work. A state of other data, another model or optimizer is refused.

    Args:
        directory: Of this run alone; of the chief, the others need not see it. One of a store, "gs://bucket/run", where
            TensorFlow has a file system for it.
        every_steps: Steps between two saves.
        every_s: Seconds between two saves. When both are left out, that of Young and Daly: `sqrt(2 * save_s * mtbf_s)`
            with the time `save_s` that a save was seen to take.
        keep: Saves that are kept, and as many of the starts of epochs.
        mtbf_s: Mean time between failures of the whole job, a day by default; for the interval of Young and Daly.
        restart: Whether to begin anew where the directory holds another run, or one that cannot be gone on with; what
            was there is deleted. A run of the same data, model and optimizer goes on all the same, so that a job that
            is restarted does not lose what it has done.

    Raises:
        RecoveryError: When an argument is not positive; in `fit`, when the model is not a prepared one, another process
            uses the directory, the checkpoint is of another run, or none of those that are there can be read.

    Example:
        >>> import tempfile
        >>> import keras, numpy as np, tfscale
        >>> dp = tfscale.DataParallel(global_batch=2, devices=1, seed=1)
        >>> data = dp.dataset((np.ones((6, 1)), np.ones(6)), shuffle=True)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     epochs = []
        ...     for num_epochs in (2, 3):
        ...         with dp.scope():
        ...             model = dp.prepare(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
        ...             model.compile("sgd", "mse")
        ...         recovery = tfscale.callbacks.Recovery(directory, every_steps=2)
        ...         history = model.fit(data, epochs=num_epochs, verbose=0, callbacks=[recovery])
        ...         epochs.append((history.epoch, int(model.optimizer.iterations.numpy())))
        >>> epochs
        [([0, 1], 6), ([0, 1, 2], 9)]

    Reference:
        Young 1974, "A first order approximation to the optimum checkpoint interval", CACM 17(9).
        Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3).
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        every_steps: int | None = None,
        every_s: float | None = None,
        keep: int = 3,
        mtbf_s: float = 86_400.0,
        restart: bool = False,
    ):
        super().__init__()
        check_interval(every_steps, every_s, keep, mtbf_s)
        self.settings = Settings(find_directory(directory), every_steps, every_s, keep, mtbf_s, bool(restart))
        self._run: RecoveryRun | None = None

    def take_part_in(self, run: RecoveryRun | None) -> None:
        """Is told by a prepared model what `fit` it belongs to; None for none."""
        self._run = run

    def on_train_begin(self, logs: Any = None) -> None:
        """Takes up the newest state."""
        del logs
        run = self._running()
        run.epochs = self.params["epochs"]
        run.begin()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Takes up the metrics of an unfinished epoch."""
        del logs
        self._running().begin_epoch(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves what is due."""
        del logs
        self._running().end_epoch(epoch)

    def on_train_end(self, logs: Any = None) -> None:
        """Waits until everything is written."""
        del logs
        self._running().end()

    def _running(self) -> RecoveryRun:
        if self._run is None:
            raise RecoveryError(
                "`Recovery` is for a prepared model.\n"
                f"Received: {self.model.name!r}, which is not. Put it through `dp.prepare` before `fit`."
            )
        return self._run


class _BeforeEachCall(keras.callbacks.Callback):
    """Is the first to hear of a call, when all have done with the one before."""

    def __init__(self, run: RecoveryRun):
        super().__init__()
        self._run = run
        # Whoever said at which steps to save gets them.
        self.several_steps_safe = run.settings.every_steps is None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del logs
        self._run.before_call(batch)


class RecoverableFit:
    """One `fit` of a prepared model that has a `Recovery` among its callbacks.

    Args:
        recovery: The callback.
        callbacks: All of them; put into an order in which all that is saved has been counted.
        model: Prepared.
        strategy: Of the job.
        data: What is trained on.
    """

    def __init__(
        self,
        recovery: Recovery,
        callbacks: list[keras.callbacks.Callback],
        *,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        data: FitData,
    ):
        self._recovery = recovery
        self._model = model
        self._data = data
        self._is_in_use = False
        # Keras would add its `History` behind `Recovery`, which has to be last.
        callbacks.remove(recovery)
        if not any(isinstance(each, keras.callbacks.History) for each in callbacks):
            callbacks.append(keras.callbacks.History())
        others = list(callbacks)
        self._run = RecoveryRun(recovery.settings, model, strategy=strategy, data=data, callbacks=others)
        callbacks[:] = [_BeforeEachCall(self._run), *others, recovery]
        recovery.take_part_in(self._run)

    def use(self, epoch_iterator: Any) -> None:
        """Takes the first iterator that Keras builds the model from: that of the training data."""
        if not self._is_in_use:
            self._is_in_use = True
            self._data.use(epoch_iterator, self._model.steps_per_execution)

    @property
    def goes_on(self) -> bool:
        """Whether a run that was interrupted goes on."""
        return self._run.goes_on

    def logs(self) -> dict[str, Any]:
        """Those of an epoch that was resumed behind its last step."""
        return self._run.last_logs

    def close(self) -> None:
        """Lets go of everything."""
        self._run.close()
        self._recovery.take_part_in(None)


def find_recoverable_fit(
    model: keras.Model, strategy: tf.distribute.Strategy, arguments: MutableMapping[str, Any], global_batch: int | None
) -> RecoverableFit | None:
    """Returns the `fit` of these arguments, if there is a `Recovery` in `arguments["callbacks"]`, which it orders.

    Args:
        model: Prepared.
        strategy: Of the job.
        arguments: Of `fit`, by name.
        global_batch: Examples of a step, where that is fixed.

    Raises:
        RecoveryError: When there is more than one, or another one on another worker.
    """
    given = arguments.get("callbacks")
    if isinstance(given, keras.callbacks.CallbackList):
        callbacks = given.callbacks
    else:
        callbacks = list(given) if isinstance(given, list | tuple) else [given]
    if any(isinstance(inner_callback(each), Recovery) and not isinstance(each, Recovery) for each in callbacks):
        raise RecoveryError(
            "`Recovery` writes on the chief alone by itself, and needs all workers for that.\n"
            "Received: one inside of a `ChiefOnly`. Give it to `fit` as it is, on every worker."
        )
    found = [each for each in callbacks if isinstance(each, Recovery)]
    _check_workers(found, strategy)
    if not found:
        return None
    if len(found) > 1:
        raise RecoveryError(
            f"One `Recovery` is enough.\nReceived: {len(found)} among the callbacks of `fit`. Leave one: "
            "`dp.callbacks(directory)` holds one already."
        )
    data = FitData(arguments, global_batch, strategy)
    fit = RecoverableFit(found[0], callbacks, model=model, strategy=strategy, data=data)
    if callbacks is not getattr(given, "callbacks", None):
        arguments["callbacks"] = callbacks
    return fit


def _check_workers(found: Sequence[Recovery], strategy: tf.distribute.Strategy) -> None:
    """Refuses, on all workers, what would have them save at different steps."""
    own = 1 + (found[0].settings.every_steps or 0) if found else 0
    numbers = gather_number(strategy, own)
    if len(set(numbers)) > 1:
        words = {0: "no `Recovery`", 1: "one that saves by the clock"}
        shown = "; ".join(
            f"worker {rank} has {words.get(number, f'every_steps={number - 1}')}"
            for rank, number in _first_of_each(numbers)
        )
        raise RecoveryError(
            "All workers must save at the same steps, each with a `Recovery` of the same `every_steps`.\n"
            f"Received: {shown}. Give every worker the same callbacks; the chief alone writes."
        )


def _first_of_each(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The first worker that has it, and the number, for each of them."""
    return [(numbers.index(number), number) for number in dict.fromkeys(numbers)]
