"""The unpromised names that change or resume the course of `fit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.common import global_state
from keras.src.random import seed_generator

from tfscale.framework.hooks import assign, own_method, read, replace


def restore_epoch(model: keras.Model, epoch: int | None) -> None:
    """Lets `fit` begin with `epoch`; None for the one that it was given. Why: as `restored_epoch`.

    Breaks first: tests/recovery/test_resume.py.
    """
    assign(model, "_initial_epoch", epoch)


def begin_epochs_later(
    epoch_iterator: Any, find: Callable[[], tuple[int, int]], batches_of: Callable[[Any], Any]
) -> None:
    """Leaves out the first calls of an epoch that a Keras epoch iterator runs.

    Why: Keras counts the steps of every epoch from 0, and takes data that begin in the middle of one for too short.
    And it hands a call an iterator whose next batch nobody can look at.
    Breaks first: tests/recovery/test_resume.py.

    Args:
        epoch_iterator: Of `fit`.
        find: Called when an epoch begins; returns how many calls to leave out, and how many steps former epochs, of
            another process, took from the same pass over the data.
        batches_of: Makes what the step function gets of the iterator of a pass.
    """
    enumerate_calls = read(epoch_iterator, "_enumerate_iterator")
    read(epoch_iterator, "_steps_seen")

    def from_the_middle() -> Any:
        calls, steps_before = find()
        for index, (begin, end, iterator) in enumerate(enumerate_calls()):
            if index == 0:
                epoch_iterator._steps_seen += steps_before
            if index >= calls:
                yield begin, end, batches_of(iterator)

    replace(epoch_iterator, "_enumerate_iterator", from_the_middle)


def batches_per_pass(epoch_iterator: Any) -> int | None:
    """The batches that the data of a Keras epoch iterator have, as far as Keras knows.

    Why: the public `num_batches` is `steps_per_epoch` where that was given. Breaks first: as `begin_epochs_later`.
    """
    return read(epoch_iterator, "_num_batches")


def callback_counters(callback: keras.callbacks.Callback) -> tuple[str, ...]:
    """The attributes in which one of Keras's own callbacks, or a subclass, keeps what it has counted so far.

    Why: Keras has no way to save a callback's state. Those that are not here keep none.
    Breaks first: tests/recovery/test_counters.py.
    """
    return tuple(name for cls, names in _COUNTERS.items() if isinstance(callback, cls) for name in names)


_COUNTERS: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: ("wait", "stopped_epoch", "best", "best_weights", "best_epoch"),
    keras.callbacks.History: ("epoch", "history"),
    keras.callbacks.ModelCheckpoint: (
        "best",
        "epochs_since_last_save",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
        "_current_epoch",
    ),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
    keras.callbacks.SwapEMAWeights: ("_ema_weights_in_model",),
    keras.callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch", "_previous_epoch_iterations"),
}

# Keras 3.13 and later have a constant for it, with this value.
_GLOBAL_SEED_GENERATOR = "global_seed_generator"


def global_seed_generator(*, make: bool = False) -> keras.random.SeedGenerator | None:
    """The generator behind `keras.random` without a seed; None before its first use, unless it is to be made.

    Why: nothing public leads to its state. Breaks first: tests/recovery/test_counters.py.
    """
    if make:
        return seed_generator.global_seed_generator()
    return global_state.get_global_attribute(_GLOBAL_SEED_GENERATOR)


def use_global_seed_generator(generator: keras.random.SeedGenerator | None) -> None:
    """Makes `generator` the one behind `keras.random` without a seed in this thread, if there is one.

    Why: Keras keeps it by thread, and each replica is traced by a thread of its own, in which it would make another.
    Breaks first: tests/exact/test_randomness.py.
    """
    if generator is not None:
        global_state.set_global_attribute(_GLOBAL_SEED_GENERATOR, generator)


def join_steps(epoch_iterator: Any, join: Callable[[Any, int | None], Any]) -> None:
    """Lets `join(steps, num_steps)` say which steps of an epoch each call of the step function takes.

    Why: Keras fixes the steps per call when `fit` begins, and goes on past `steps_per_epoch` where they do not
    divide it.
    Breaks first: tests/training/call/test_steps_per_call.py.
    """
    enumerate_steps = read(epoch_iterator, "_enumerate_iterator")
    replace(epoch_iterator, "_enumerate_iterator", lambda: join(enumerate_steps(), epoch_iterator.num_batches))


def restored_epoch(model: keras.Model) -> int:
    """The epoch at which a callback such as `BackupAndRestore` lets `fit` go on; 0 when none does.

    Why: it reaches `fit` through this attribute alone, in `on_train_begin`.
    Breaks first: tests/data/test_passes.py::test_backup_goes_on_with_the_order_of_its_epoch.
    """
    return int(read(model, "_initial_epoch") or 0)


def keep_last_logs(
    model: keras.Model, otherwise: Callable[[], dict[str, Any]] = dict, reads_metrics: Callable[[], bool] = bool
) -> None:
    """Takes the logs of an epoch from its last step, where Keras would compute them anew from the metrics.

    An epoch that was resumed behind its last step has none: then they are what `otherwise()` returns. Keras's way is
    kept where `reads_metrics()`: what a step of the user's own returns need not be the metrics whose names it bears,
    and at the end of data of unknown length metrics may count once more (`data_end.py`).

    Why: they are those of the global state already, and on several workers each read of a metric's variable is a
    collective of its own, milliseconds per epoch and metric.
    Breaks first: tests/training/test_prepared_model.py::test_logs_of_an_epoch_are_not_computed_anew.
    """
    as_keras = own_method(model, "_get_metrics_result_or_logs")

    def of_epoch(logs: dict[str, Any]) -> dict[str, Any]:
        if not reads_metrics() or not logs:
            return logs or otherwise()
        try:
            return as_keras(logs)
        except ValueError:  # Of a metric that the step never used, and so was never built.
            return logs

    replace(model, "_get_metrics_result_or_logs", of_epoch)


def profiled_batches(callback: keras.callbacks.TensorBoard) -> tuple[int, int]:
    """The first and the last batch that `callback` profiles; both 0 for none.

    Why: the public argument `profile_batch` is kept only in this form.
    Breaks first: tests/rederive/test_step_counted.py::test_tensorboard.
    """
    return read(callback, "_start_batch"), read(callback, "_stop_batch")


def profile_batches(callback: keras.callbacks.TensorBoard, batches: tuple[int, int]) -> None:
    """Lets `callback` profile other batches. Why and breaks first: as `profiled_batches`."""
    for name, batch in zip(("_start_batch", "_stop_batch"), batches, strict=True):
        assign(callback, name, batch)
