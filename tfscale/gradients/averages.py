"""When does the moving average of the weights move, beside gradient accumulation?

Once per update. It is the one point where one replica of tfscale is meant to differ from plain Keras, which moves it
on every micro-step, though the weights did not: so it is said when training begins, by name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import keras
import tensorflow as tf

from tfscale.framework.optimizers import hook_averages, micro_step_counter
from tfscale.replicas.share import current_share

_log = logging.getLogger(__name__)


def average_once_per_update(updater: keras.optimizers.Optimizer) -> None:
    """Makes the average of an optimizer that accumulates gradients move with its updates, and says so. Idempotent.

    Args:
        updater: With `gradient_accumulation_steps` and `use_ema`.
    """
    is_first = hook_averages(updater, lambda action: _on_update_step(updater, action))
    if not is_first:
        return
    steps, momentum = updater.gradient_accumulation_steps, updater.ema_momentum
    _log.warning(
        "The optimizer %r accumulates gradients over %d micro-steps and averages weights: the average moves once per "
        "update here, where plain Keras moves it on every micro-step. ema_momentum=%.6g moves it as far per update as "
        "plain Keras does with %.6g.",
        updater.name,
        steps,
        momentum**steps,
        momentum,
    )


def _on_update_step(optimizer: keras.optimizers.Optimizer, action: Callable[[], None]) -> None:
    """Runs `action` in the last micro-step of an update, or at once outside of a step, as at the end of `fit`."""
    if tf.executing_eagerly() and current_share() is None:
        action()
        return

    def run() -> tf.Tensor:
        action()
        return tf.constant(0)

    steps = optimizer.gradient_accumulation_steps
    is_update = tf.equal((tf.convert_to_tensor(micro_step_counter(optimizer).value) + 1) % steps, 0)
    tf.cond(is_update, run, lambda: tf.constant(0))
