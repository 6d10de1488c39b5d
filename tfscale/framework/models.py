"""The unpromised names of a Keras model: its layers, how it is called, how it is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfscale.framework.hooks import read, replace


def runs_eagerly(model: keras.Model) -> bool:
    """Whether no step of a model has a graph: it was compiled so, or no function of TensorFlow has one.

    Why: Keras's `run_eagerly` does not tell of `tf.config.run_functions_eagerly(True)`.
    Breaks first: tests/training/check/test_eager_steps.py.
    """
    return bool(model.run_eagerly or tf.config.functions_run_eagerly())


def flat_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Every layer of `model`, at any depth, itself included.

    Why: the public `layers` stops at the first level, and misses cells and wrapped layers.
    Breaks first: tests/exact/test_batch_norm.py.
    """
    return list(read(model, "_flatten_layers")())


def all_metrics(model: keras.Model) -> list[keras.metrics.Metric]:
    """The metrics of a compiled model one by one, where `model.metrics` has one object for those of `compile`.

    Why and breaks first: as `metric_function`.
    """
    compiled = read(model, "_compile_metrics")
    inner = compiled.metrics if compiled is not None and compiled.built else ()
    return [*(metric for metric in model.metrics if metric is not compiled), *inner]


def given_to_compile(model: keras.Model) -> list[Any]:
    """Losses and metrics as they were given to `compile`, before Keras has made anything of them.

    Why: what they count in Python has to be known before the model is built, and public are the losses only.
    Breaks first: tests/training/test_contract.py, the table of numbers.
    """
    compiled = read(model, "_compile_metrics")
    metrics = [] if compiled is None else [read(compiled, "_user_metrics"), read(compiled, "_user_weighted_metrics")]
    return [each for each in keras.tree.flatten([getattr(model, "loss", None), metrics]) if each is not None]


def call_model(model: keras.Model, x: Any, *, training: bool) -> Any:
    """Calls `model` as Keras's own steps do: a user's `call` may lack the `training` argument.

    Why: the signature is known to Keras only. Breaks first: tests/training/test_contract.py, the table of models.
    """
    return model(x, training=training) if read(model, "_call_has_training_arg") else model(x)


def compute_loss_of(model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any, *, training: bool) -> Any:
    """Calls `model.compute_loss`, a user's override included, which may lack the `training` argument.

    Why and breaks first: as `call_model`.
    """
    return read(model, "_compute_loss")(x, y, y_pred, sample_weight, training=training)


def build_from_spec(model: keras.Model, data_spec: Any) -> None:
    """Builds the layers, losses, metrics and optimizer of `model` from shapes alone.

    Why: Keras builds from the first batch, which it reduces over replicas eagerly; several workers crash on it and
    an uneven batch crashes on one (`ValueError` converting `PerReplica`).
    Breaks first: tests/training/test_workers.py.
    """
    read(model, "_symbolic_build")(data_batch=data_spec)


def replace_symbolic_build(model: keras.Model, build: Callable[..., None]) -> None:
    """Calls `build(iterator=None, data_batch=None)` where `fit` and the others would build the model.

    Why and breaks first: as `build_from_spec`.
    """
    replace(model, "_maybe_symbolic_build", build)


def replace_auto_jit_compile(model: keras.Model, decide: Callable[[], bool]) -> None:
    """Lets `decide()` answer what `compile(jit_compile="auto")` means for `model`.

    Why: Keras switches XLA off without a word when a model was created under a strategy.
    Breaks first: tests/replicas/test_xla.py.
    """
    replace(model, "_resolve_auto_jit_compile", decide)
