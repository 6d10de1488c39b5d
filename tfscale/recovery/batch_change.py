"""What becomes of a run's state when it goes on with another global batch?

Whatever is counted in steps goes on from the examples seen; a rate that was scaled by the factor of the old batch gets
that of the new one, with whatever callbacks made of it meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import keras

from tfscale.framework.optimizers import has_plain_rate, micro_step_counter
from tfscale.gradients.double_buffer import buffer_of
from tfscale.gradients.updaters import held_optimizers, innermost
from tfscale.recovery.position import convert_iterations

_log = logging.getLogger(__name__)


def read_rates(model: keras.Model) -> list[float | None]:
    """The learning rate of each optimizer, of a schedule that of its next step; None where there are several."""
    return [_rate(innermost(optimizer)) for optimizer in held_optimizers(model)]


def change_batch(
    model: keras.Model, *, examples_seen: int, new_batch: int, rates: Sequence[Any], factors: Sequence[float]
) -> None:
    """Lets every optimizer go on with another batch.

    Args:
        model: With the state of the old batch.
        examples_seen: By the steps that its optimizers count.
        new_batch: Examples of a step from now on.
        rates: Of the last step with the old batch, per optimizer.
        factors: By what a plain rate differs because of the batch, per optimizer.
    """
    for index, optimizer in enumerate(map(innermost, held_optimizers(model))):
        counter = micro_step_counter(optimizer)
        old = int(keras.ops.convert_to_numpy(counter))
        new = convert_iterations(old, examples_seen, new_batch, optimizer.gradient_accumulation_steps or 1)
        buffer = buffer_of(optimizer)
        if buffer is not None and buffer.is_waiting():
            # The examples of the last step were seen, and their update is still to come.
            new -= 1
        counter.assign(new)
        if has_plain_rate(optimizer) and factors[index] != 1:
            optimizer.learning_rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate)) * factors[index]
        rate = _rate(optimizer)
        _log.info("%s: step %d -> %d; rate %s -> %s.", optimizer.name, old, new, rates[index], rate)
        if rates[index] and rate and rate != rates[index]:
            _correct_velocity(optimizer, rate / rates[index])


def rate_factors(old: Sequence[Any], new: Sequence[Any]) -> list[float]:
    """By what the rates with which two runs began differ; 1 where a schedule has them."""
    return [b / a if a and b else 1.0 for a, b in zip(old, new, strict=True)]


def first_rates(model: keras.Model) -> list[float | None]:
    """The plain learning rate of each optimizer; None where it is a schedule's."""
    optimizers = map(innermost, held_optimizers(model))
    return [_rate(optimizer) if has_plain_rate(optimizer) else None for optimizer in optimizers]


def _rate(optimizer: keras.optimizers.Optimizer) -> float | None:
    rate = getattr(optimizer, "learning_rate", None)
    return None if rate is None else float(keras.ops.convert_to_numpy(rate))


def _correct_velocity(optimizer: keras.optimizers.Optimizer, factor: float) -> None:
    """Makes the velocity of Keras's SGD, which has the rate as a factor, that of a run that always had the new rate."""
    if isinstance(optimizer, keras.optimizers.SGD) and optimizer.momentum:
        for velocity in getattr(optimizer, "momentums", ()):
            velocity.assign(keras.ops.convert_to_numpy(velocity) * factor)
