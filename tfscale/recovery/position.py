"""Where in its data is a run, and where is that with another batch?"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple


@dataclass(frozen=True)
class Position:
    """How far a run has come: `epoch` epochs, and `step` steps of the next one.

    Args:
        epoch: Complete epochs, from 0.
        step: Steps done of the epoch after them.
    """

    epoch: int
    step: int


class DataStart(NamedTuple):
    """Which batch of the data comes next."""

    pass_index: int
    """Passes over the data before this one."""
    batch: int
    """Batches of this pass that were used."""


def find_data_start(position: Position, steps_per_epoch: int | None, batches_per_pass: int | None) -> DataStart:
    """Returns the batch that comes next, as Keras counts.

    Without `steps_per_epoch` an epoch is a pass. With it, Keras goes on within a pass from epoch to epoch, and begins
    another one after the epoch in which the data end.

    Args:
        position: Of the run.
        steps_per_epoch: As given to `fit`.
        batches_per_pass: Batches that the data have; None where it is not known, or they never end.
    """
    if steps_per_epoch is None:
        start = DataStart(position.epoch, position.step)
    elif batches_per_pass is None:
        return DataStart(0, position.epoch * steps_per_epoch + position.step)
    else:
        epochs_per_pass = -(-batches_per_pass // steps_per_epoch)
        passes, epochs = divmod(position.epoch, epochs_per_pass)
        start = DataStart(passes, epochs * steps_per_epoch + position.step)
    if batches_per_pass is not None and start.batch >= batches_per_pass:
        return DataStart(start.pass_index + 1, 0)
    return start


def convert_step(step: int, old_batch: int, new_batch: int) -> int:
    """Returns the step at which as many examples of an epoch were seen with another batch.

    Where no step begins at that example, the one before: no example is left out, and fewer than `new_batch` come twice.
    """
    return step * old_batch // new_batch


def convert_iterations(iterations: int, examples_seen: int, new_batch: int, accumulation: int) -> int:
    """Returns the count of steps with which a schedule goes on where it was, in examples.

    iterations = round(examples_seen / new_batch), for schedules that are evaluated at `iterations * batch_ratio`.

    Args:
        iterations: The old count, micro-steps where gradients are accumulated.
        examples_seen: Examples in them.
        new_batch: Examples of a step from now on.
        accumulation: Micro-steps of an update, 1 for none. Those done of an unfinished update stay done.
    """
    updates = round(Fraction(examples_seen, new_batch * accumulation))
    return updates * accumulation + iterations % accumulation


def count_calls_to_skip(step: int, steps_per_epoch: int | None, steps_per_execution: int) -> int:
    """Returns how many of the calls that Keras makes in an epoch were made before `step`.

    The calls that are left suffice for the steps that are left, also where `step` is no multiple of
    `steps_per_execution` because a former run had another.
    """
    if steps_per_epoch is None:
        return -(-step // steps_per_execution)
    calls = -(-steps_per_epoch // steps_per_execution)
    return calls - -(-max(steps_per_epoch - step, 0) // steps_per_execution)
