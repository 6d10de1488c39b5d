"""Which step is Keras's or the user's own, and how does it run as it stands?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.foreign import set_by_user
from tfscale.exact.terms import meet_term
from tfscale.step_context import Flag

_KERAS_STEP = Flag("keras_step")


def has_own_step(model: keras.Model, name: str) -> bool:
    """Whether the user's class, or script, defines `name` itself, so that tfscale runs theirs."""
    return set_by_user(model, name) is not None or getattr(type(model), name) is not getattr(keras.Model, name)


def runs_as_it_stands(model: keras.Model, name: str, *, is_divided: bool = False) -> bool:
    """Whether the step `name` is run as it is written: where the user's class defines it, or what it logs.

    Args:
        model: Prepared.
        name: Of the step; that of predictions logs nothing.
        is_divided: Whether a replica takes its rows in parts, of which none knows what to log.
    """
    has_logs = name != "predict_step" and not is_divided
    return has_own_step(model, name) or (has_logs and has_own_step(model, "compute_metrics"))


def has_own_logs(model: keras.Model) -> bool:
    """Whether code of the user's says what is logged."""
    return any(has_own_step(model, name) for name in ("train_step", "test_step", "compute_metrics"))


def meet_loss(model: keras.Model, loss: tf.Tensor) -> bool:
    """Meets the loss of a step; returns whether it is a sum."""
    return meet_term("loss", model, "the loss", [tf.reduce_sum(loss)])


def update_metrics(model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> None:
    """Calls `compute_metrics` for a step whose logs are the results of the model's metrics.

    Raises:
        ModelError: When it returns others: of rows in parts, none of the parts knows those of all.
    """
    logged = model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
    others = set(logged) ^ set(model.get_metrics_result()) if has_own_step(model, "compute_metrics") else set()
    if others:
        raise ModelError(
            "With `micro_batch` or `logical_replicas` the logs are the results of the model's metrics: what a "
            "`compute_metrics` adds to them, or leaves out, is known of a part of the rows only.\n"
            f"Received: {', '.join(sorted(others))} in the `compute_metrics` of model {model.name!r} of class "
            f"{type(model).__name__}. Let a metric of the model count it, or leave these arguments out."
        )


def keras_step(model: keras.Model, name: str, data: Any) -> dict[str, Any]:
    """The step `name` of Keras or of the user, on all rows; to be called in a lone share.

    Args:
        model: Prepared.
        name: `"train_step"` or `"test_step"`.
        data: The rows.
    """
    if runs_as_it_stands(model, name):
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
