"""Whose code takes part in a step, and is its first one looked at?"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import keras

from tfscale.errors import ModelError
from tfscale.exact.batch_wide_layers import fills_up
from tfscale.exact.foreign import has_axis_of_rows, is_of_keras, set_by_user
from tfscale.framework.layers import ranks_of_inputs
from tfscale.framework.losses import arguments_of_function, loss_entries, metric_function
from tfscale.framework.models import all_metrics, flat_layers, runs_eagerly
from tfscale.gradients.updaters import innermost

_log = logging.getLogger(__name__)
MODES = ("auto", "always", "warn", "off")
# Keras's own, which run what a user gives them.
_RUN_OTHERS = [
    getattr(keras.layers, name)
    for name in ("Lambda", "TFSMLayer", "JaxLayer", "FlaxLayer", "TorchModuleWrapper")
    if hasattr(keras.layers, name)
]
# Keras's own, in which the rows of a batch meet, in an order that they draw.
_MIX_ROWS = (keras.layers.MixUp, keras.layers.CutMix)
_HOOKS = ("call", "train_step", "test_step", "compute_loss", "compute_metrics")
_HOOKS_OF_PREDICTIONS = ("call", "predict_step")


def check_mode(mode: Any) -> None:
    """Checks `check` of `prepare`.

    Raises:
        ModelError: When it is none of the four.

    Example:
        >>> check_mode("auto")
    """
    if mode not in MODES:
        raise ModelError(f"`check` must be one of {', '.join(map(repr, MODES))}.\nReceived: check={mode!r}.")


def is_checked(model: keras.Model, mode: str, *, predicts: bool = False) -> bool:
    """Whether the first step of `model` is compared with that of one replica.

    Args:
        model: Built and, where it is, compiled.
        mode: `"auto"` leaves out what is Keras's own throughout.
        predicts: Whether the step is one of `predict`.
    """
    if mode == "off":
        return False
    return mode in ("always", "warn") or bool(foreign_parts(model, predicts=predicts))


def refuse_unseen_parts(model: keras.Model, mode: str, *, is_logical: bool, num_replicas: int) -> None:
    """Says that nobody can look at code whose rows are run in parts, since BatchNormalization sees a part at a time.

    Args:
        model: Built and, where it is, compiled.
        mode: `check` of `prepare`.
        is_logical: Whether the parts are those of logical replicas, which are the run, and not micro-steps.
        num_replicas: Devices of the job: on several, it is seen at least that the code divides among them.

    Raises:
        ModelError: Naming what tfscale cannot vouch for, where nothing of it was looked at in a logical run.
    """
    found = ", ".join(foreign_parts(model)) or f"check={mode!r}"
    if not is_logical or num_replicas > 1 or mode == "warn":
        _log.warning(
            "model %r has BatchNormalization, which sees a part of the rows at a time: so it is not looked at whether "
            "%s treats each row by itself in these parts",
            model.name,
            found,
        )
        return
    raise ModelError(
        "Code of your own must make means over its rows, and let none of them meet. The first step shows whether it "
        "does, but not on one device, where logical replicas take turns, and BatchNormalization sees one at a time.\n"
        f"Received: model {model.name!r} with {found}. Run it once on two (`tfscale.simulate_replicas(2)`), then "
        'say so here: `dp.prepare(model, check="off")`.'
    )


def foreign_parts(model: keras.Model, *, predicts: bool = False) -> list[str]:
    """What tfscale cannot vouch for in a step of `model`: code that is neither Keras's nor its own.

    Args:
        model: Built and, where it is, compiled.
        predicts: Whether the step is one of `predict`, which asks for no loss, metric or optimizer.

    Example:
        >>> import keras
        >>> foreign_parts(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
        []
    """
    hooks = _HOOKS_OF_PREDICTIONS if predicts else _HOOKS
    found = [name for name in hooks if set_by_user(model, name) or not _is_known(getattr(type(model), name))]
    layers = [layer for layer in flat_layers(model) if layer is not model]
    found += [f"layer {layer.name!r}" for layer in layers if not _is_known_layer(layer)]
    if runs_eagerly(model):
        # No graph tells whether a gradient has one row for each token, or for each different one of them.
        found += [f"sparse layer {layer.name!r}, run eagerly" for layer in layers if getattr(layer, "sparse", False)]
    # A functional model made of operations such as `x - ops.mean(x, 0)`.
    operations = getattr(model, "operations", ())
    found += [f"operation {each.name!r}" for each in operations if not isinstance(each, keras.layers.Layer)]
    if model.compiled and not predicts:
        losses = [entry.loss for entry in loss_entries(model)]
        found += [f"loss {loss.name!r}" for loss in losses if not _is_known_loss(loss)]
        metrics = all_metrics(model)
        # Where outputs have no column, the last axis is that of the rows.
        ranks = [len(output.shape) for output in getattr(model, "outputs", None) or ()]
        found += [f"metric {metric.name!r}" for metric in metrics if not _is_known_metric(metric, ranks)]
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and not _is_known(type(innermost(optimizer))):
            found.append(f"optimizer {optimizer.name!r}")
    return found


def computes_row_by_row(layer: keras.layers.Layer) -> bool:
    """Whether tfscale vouches for a layer and all that is in it.

    Example:
        >>> import keras
        >>> computes_row_by_row(keras.layers.Dense(1)), computes_row_by_row(keras.layers.Lambda(lambda x: x))
        (True, False)
    """
    parts = flat_layers(layer)
    operations = [each for part in parts for each in getattr(part, "operations", ())]
    return (
        all(map(_is_known_layer, parts))
        and not any(map(fills_up, parts))
        and all(isinstance(each, keras.layers.Layer) for each in operations)
    )


def _is_known(thing: Any) -> bool:
    return is_of_keras(thing) and thing not in _RUN_OTHERS


def _is_known_layer(layer: keras.layers.Layer) -> bool:
    if not _is_known(type(layer)) or isinstance(layer, _MIX_ROWS) or set_by_user(layer, "call"):
        return False
    # What a regularizer adds may be a sum, and float8 keeps the largest values of the rows that it saw.
    if layer.activity_regularizer is not None or getattr(layer, "quantization_mode", None) is not None:
        return False
    activations = (getattr(layer, name, None) for name in ("activation", "recurrent_activation"))
    return all(each is None or _is_known(each) for each in activations) and not _lets_rows_meet(layer)


def _lets_rows_meet(layer: keras.layers.Layer) -> bool:
    """Whether one of the last axes of what a layer of Keras's own gets is that of the rows, or may be."""
    ranks = ranks_of_inputs(layer)
    # Vectors attend to those of other rows; a softmax over the last axis of one number for each row is one over rows.
    attends = isinstance(layer, keras.layers.Attention) and any(rank < 3 for rank in ranks)
    is_column = any(rank < 2 for rank in ranks)
    activates = is_column and getattr(layer, "activation", None) is not None
    # One row of all examples' tokens together.
    counts = is_column and getattr(layer, "output_mode", None) in ("multi_hot", "count", "tf_idf")
    return attends or activates or counts or has_axis_of_rows(layer, ranks=ranks)


def _is_known_loss(loss: Any) -> bool:
    loss = getattr(loss, "loss", loss)
    return _is_known(type(loss)) and _is_known(getattr(loss, "fn", type(loss)))


def _is_known_metric(metric: Any, ranks: Sequence[int]) -> bool:
    function = metric_function(metric)
    if function is not None and any(rank < 2 for rank in ranks):
        return False
    # Over all axes they are one number of a batch.
    is_one_number = isinstance(metric, keras.metrics.PearsonCorrelation | keras.metrics.ConcordanceCorrelation)
    if is_one_number or function is keras.losses.circle:
        return False
    if has_axis_of_rows(metric, arguments_of_function(metric), ranks=ranks):
        return False
    return _is_known(type(metric)) and (function is None or _is_known(function))
