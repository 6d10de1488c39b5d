"""Which step is Keras's or the user's own, and how does it run as it stands?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact.foreign import set_by_user
from tfscale.exact.terms import meet_term
from tfscale.step_context import Flag

_KERAS_STEP = Flag("keras_step")


def has_own_step(model: keras.Model, name: str) -> bool:
    """Whether the user's class, or script, defines `name` itself, so that tfscale runs theirs."""
    return set_by_user(model, name) is not None or getattr(type(model), name) is not getattr(keras.Model, name)


def has_own_logs(model: keras.Model) -> bool:
    """Whether a step of the user's says what is logged."""
    return has_own_step(model, "train_step") or has_own_step(model, "test_step")


def meet_loss(model: keras.Model, loss: tf.Tensor) -> bool:
    """Meets the loss of a step; returns whether it is a sum."""
    return meet_term("loss", model, "the loss", [tf.reduce_sum(loss)])


def keras_step(model: keras.Model, name: str, data: Any) -> dict[str, Any]:
    """The step `name` of Keras or of the user, on all rows; to be called in a lone share.

    Args:
        model: Prepared.
        name: `"train_step"` or `"test_step"`.
        data: The rows.
    """
    if has_own_step(model, name):
        return getattr(model, name)(data)

    # Replicas are traced by threads that take turns: what one of them set, another must not take away.
    own = set_by_user(model, "compute_loss") or type(model).compute_loss.__get__(model)
    model.compute_loss = functools.partial(_compute_loss, own, model)
    with _KERAS_STEP.raised():
        return getattr(model, name)(data)


def _compute_loss(own: Callable[..., Any], model: keras.Model, *args: Any, **kwargs: Any) -> Any:
    loss = own(*args, **kwargs)
    if _KERAS_STEP.is_raised:
        meet_loss(model, loss)
    return loss
