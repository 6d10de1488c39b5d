"""The unpromised names of Keras's losses and metrics: what `compile` made of them, and masks."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras

from tfscale.framework.hooks import own_method, read, replace

# What divides a loss, and through whom it asks.
_DIVIDES = "scale_loss_for_distribution"
_ON_THE_WAY = ("tfscale", "tensorflow")


def keras_mask(value: Any) -> Any:
    """The mask that Keras attached to `value`, or None.

    Why: `Loss.__call__` reads masks from the tensor itself, and there is no public getter.
    Breaks first: tests/training/test_contract.py, the cases with masks.
    """
    return getattr(value, "_keras_mask", None)


def copy_keras_mask(source: Any, target: Any) -> None:
    """Attaches the mask of `source`, if it has one, to `target`. Why and breaks first: as `keras_mask`."""
    if keras_mask(source) is not None:
        attach_keras_mask(target, keras_mask(source))


def attach_keras_mask(value: Any, mask: Any) -> None:
    """Attaches a mask to `value`. Why and breaks first: as `keras_mask`."""
    value._keras_mask = mask


def keras_logits(value: Any) -> Any:
    """The logits that Keras's `softmax` or `sigmoid` attached to the probabilities `value`, or None.

    Why: its cross entropies compute of those, where there are some, and of clipped probabilities elsewhere.
    Breaks first: tests/exact/test_attached.py.
    """
    return getattr(value, "_keras_logits", None)


def attach_keras_logits(probabilities: Any, logits: Any) -> None:
    """Attaches logits to probabilities. Why and breaks first: as `keras_logits`."""
    probabilities._keras_logits = logits


def is_asked_by_loss() -> bool:
    """Whether it is a loss of Keras's that asks TensorFlow something now.

    Why: wherever a loss is called under a scope, Keras divides it by the number of replicas, also one of all rows, of
    which no replica has a part. Whoever else asks there has to be told how many there are. It stands on Python's stack.
    Breaks first: tests/programs/scripts/scores_in_scope.py.
    """
    module = sys.modules[keras.losses.Loss.__module__]
    read(module, _DIVIDES)
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _ON_THE_WAY:
        frame = frame.f_back
    return frame is not None and frame.f_globals is vars(module)


COMPILED_LOSS_NAMES = ("loss", "_compile_loss")
"""Attributes under which Keras itself keeps what `compile(loss=...)` was given, which `loss_entries` covers."""


def loss_entries(model: keras.Model) -> list[Any]:
    """The built loss terms of a compiled model: a mutable list of (path, loss, loss_weights, name) tuples.

    Why: each term needs its own denominator over all replicas, and Keras resolves strings and functions to loss
    objects only when it has seen the outputs. Empty when the model has no compiled loss or is not built yet.
    Breaks first: tests/training/test_contract.py, the table of losses.
    """
    compile_loss = read(model, "_compile_loss")
    return [] if compile_loss is None else read(compile_loss, "_flat_losses") or []


def output_loss_trackers(model: keras.Model) -> list[keras.metrics.Mean]:
    """The `Mean` behind the log entry of each output's loss; empty for a single output.

    Why: they are among the public `metrics`, but cannot be told apart from the user's there.
    Breaks first: tests/training/test_contract.py, the case several inputs and outputs.
    """
    compile_loss = read(model, "_compile_loss")
    return [] if compile_loss is None else list(compile_loss.metrics)


def lists_of_losses(layers: Sequence[keras.layers.Layer]) -> list[list[Any]]:
    """The lists, to be changed in place, in which layers keep what `add_loss` and activity regularizers have left.

    Why: `losses` is a copy. Breaks first: tests/programs/scripts/point_net.py.
    """
    return [read(layer, "_losses") for layer in layers]


def count_added_losses(model: keras.Model) -> int:
    """How many leading entries of `model.losses` come from `add_loss`; the others are weight regularizers.

    Why: `model.losses` is one list, and only the first kind depends on the batch.
    Breaks first: tests/training/test_contract.py, the cases add_loss.
    """
    return len(model.losses) - len(read(model, "_get_regularization_losses")())


def have_regularizers_called_in(layer: keras.layers.Layer, context: Callable[[], Any]) -> None:
    """Has a layer call the regularizers of its weights in `context()`. Idempotent.

    Why: one of somebody's own may draw. Breaks first: tests/exact/test_draws_of_updates.py.
    """
    reference = weakref.ref(layer)

    def losses_of_regularizers() -> Any:
        with context():
            return own_method(reference(), "_get_regularization_losses")()

    replace(layer, "_get_regularization_losses", losses_of_regularizers)


def replace_added_loss_rule(model: keras.Model, rule: Callable[[Any], Any]) -> None:
    """Puts `rule(loss)` in the place of Keras's way to aggregate one entry of `model.losses`.

    Why: Keras divides every such entry by the number of replicas, which is wrong for sums and uneven batches.
    Breaks first: tests/training/test_contract.py, the cases add_loss.
    """
    replace(model, "_aggregate_additional_loss", lambda loss: rule(loss))


def loss_tracker(model: keras.Model) -> keras.metrics.Metric:
    """The `Mean` behind the log entry "loss" of a compiled model.

    Why: `model.metrics` lists it first, but only by convention.
    """
    return read(model, "_loss_tracker")


def metric_function(metric: keras.metrics.Metric) -> Any:
    """The function that a metric averages over examples; None for metrics of another kind.

    Why: it may be the user's own, in a class of Keras's. Breaks first: tests/training/check/test_vouching.py.
    """
    return getattr(metric, "_fn", None)


def arguments_of_function(owner: keras.metrics.Metric | keras.losses.Loss) -> dict[str, Any]:
    """What the function of a metric or loss gets besides labels and predictions. Why: as `metric_function`."""
    return dict(getattr(owner, "_fn_kwargs", {}))
