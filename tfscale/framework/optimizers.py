"""The unpromised names of Keras's optimizers: the way of a gradient, averages, counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from tfscale.framework.hooks import own_method, read, replace

_MOVE, _COPY = "_update_model_variables_moving_average", "_overwrite_model_variables_with_average_value"


def hook_gradients(optimizer: keras.optimizers.Optimizer, before_clipping: Callable[[list[Any]], list[Any]]) -> None:
    """Runs `before_clipping(gradients)` once per update, and switches off Keras's own, later, reduction.

    Why: Keras clips before it reduces. `_clip_gradients` is the first thing it does with the gradients of an
    update, inside the branch that gradient accumulation takes; nothing public is called at that point.
    Breaks first: tests/training/test_contract.py, the rows clipping and accumulation.
    """
    clip = own_method(optimizer, "_clip_gradients")
    replace(optimizer, "_clip_gradients", lambda grads: clip(before_clipping(list(grads))))
    replace(optimizer, "_all_reduce_sum_gradients", lambda grads_and_vars: list(grads_and_vars))


def hook_averages(optimizer: keras.optimizers.Optimizer, when: Callable[[Callable[[], None]], None]) -> bool:
    """Moves and copies back the EMA of the weights only where `when(action)` runs the action.

    Returns:
        Whether it was hooked for the first time.

    Why: with gradient accumulation Keras moves the average on every micro-step, though the weights did not move.
    Breaks first: tests/training/test_contract.py, the row EMA with accumulation.
    """
    is_first = _MOVE not in vars(optimizer)
    move, copy = own_method(optimizer, _MOVE), own_method(optimizer, _COPY)
    replace(optimizer, _MOVE, lambda trainable_variables: when(lambda: move(trainable_variables)))
    replace(optimizer, _COPY, lambda trainable_variables: when(lambda: copy(trainable_variables)))
    return is_first


def clips_gradients(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether Keras clips what it is given. Why: as `hook_gradients`."""
    return any(value is not None for value in (optimizer.clipnorm, optimizer.global_clipnorm, optimizer.clipvalue))


def micro_step_counter(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """The variable that counts calls of `apply`: micro-steps, where the public `iterations` counts updates."""
    return read(optimizer, "_iterations")


def trained_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable] | None:
    """What a built optimizer updates, in its order; None before.

    Why: they are not among the public `variables`, and a compression keeps something of each one's gradient.
    Breaks first: tests/gradients/compression/test_training.py.
    """
    return list(read(optimizer, "_trainable_variables")) if optimizer.built else None


def gradient_accumulators(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """The sums of gradients since the last update; empty without accumulation, or before the optimizer is built.

    Why: they are among the public `variables`, but cannot be told apart from momenta there.
    Breaks first: tests/training/test_contract.py, the row accumulation.
    """
    accumulates = optimizer.built and optimizer.gradient_accumulation_steps
    held = read(optimizer, "_accumulated_gradients") if accumulates else []
    return [variable for variable in held if variable is not None]


def scalar_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """The optimizer's own counters and rates, which every replica assigns alike.

    Why: see `write_locally`.
    """
    own = [read(optimizer, "_iterations"), read(optimizer, "_learning_rate")]
    return [variable for variable in own if isinstance(variable, keras.Variable)]


def has_plain_rate(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether an optimizer's learning rate is a number that may be set, and no schedule or function.

    Why: `optimizer.learning_rate` is a number either way, and `get_config` fails where a schedule has none of its own,
    as those that people write in a script.
    Breaks first: tests/recovery/test_resume.py.
    """
    return isinstance(read(optimizer, "_learning_rate"), keras.Variable)
