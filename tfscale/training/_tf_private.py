"""Every non-public TensorFlow or Keras name that tfscale stands on, one function each.

Those of the course of `fit` (epochs, calls, logs, resuming) are in `_fit_private.py`, those of data sets in
`_datasets_private.py`, those of collectives in `_collective_private.py`, by the same rules.
Nothing outside these files may import `tensorflow.python` or `keras.src`, or touch an attribute of theirs that
begins with an underscore. Each function says why the public API is not enough, the versions it was tried on, and
which test breaks first when the name goes away. Instances are adjusted, classes and modules never are.

Versions tried: see `training/versions.py`; the whole suite runs on each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf


def update_without_merge_call(strategy: tf.distribute.Strategy) -> None:
    """Lets every replica of `strategy` run its update by itself inside `tf.function`.

    Why: under `merge_call`, tf.distribute cannot update variables inside `tf.cond` or `tf.while_loop`, which
    gradient accumulation, EMA overwriting, loss scaling and several steps per call need. TF has a replica-context
    path for XLA on GPUs and turns it on in its own tests in just this way. Eager code still needs the old path:
    there replicas run one after the other, and a blocking collective would wait for a replica not yet started.
    Breaks first: tests/training/test_contract.py, the rows accumulation, EMA and steps_per_execution.
    """
    strategy.extended._use_merge_call = tf.executing_eagerly


def runs_without_merge_call(strategy: tf.distribute.Strategy) -> bool:
    """Whether `update_without_merge_call` was applied to `strategy`."""
    return getattr(strategy.extended, "_use_merge_call", None) is tf.executing_eagerly


def write_locally(variable: keras.Variable) -> None:
    """Makes an assignment in a replica change that replica's copy of `variable` only, without communication.

    Why: Keras creates an optimizer's `iterations` and `learning_rate` with `only_first_replica`, so that each
    `assign` is a `merge_call` that broadcasts; that is illegal inside `tf.cond` (LossScaleOptimizer) and costs a
    copy per replica and step. All replicas assign the same value.
    Breaks first: tests/training/test_contract.py, the row LossScaleOptimizer.
    """
    variable.value._aggregation = tf.VariableAggregation.NONE


def is_replicated(variable: keras.Variable) -> bool:
    """Whether `variable` has one copy per replica: it was created under a strategy's scope.

    Why: `tf.distribute.DistributedValues` is public, but a Keras variable holds the TF one in `_value`, and its
    public `value` raises for a deferred variable.
    """
    value = variable._value
    return value is None or isinstance(value, tf.distribute.DistributedValues)


def flat_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Every layer of `model`, at any depth, itself included.

    Why: the public `layers` stops at the first level, and misses cells and wrapped layers.
    Breaks first: tests/training/test_batch_norm.py.
    """
    return list(model._flatten_layers())


def seed_generators(model: keras.Model) -> list[keras.random.SeedGenerator]:
    """Every `SeedGenerator` held by a layer of `model`.

    Why: Keras tracks them in a private list; looking for attributes would miss those kept in lists or dicts.
    Breaks first: tests/training/test_randomness.py.
    """
    return [generator for layer in flat_layers(model) for generator in layer._seed_generators]


def keras_mask(value: Any) -> Any:
    """The mask that Keras attached to `value`, or None.

    Why: `Loss.__call__` reads masks from the tensor itself, and there is no public getter.
    Breaks first: tests/training/test_contract.py, the cases with masks.
    """
    return getattr(value, "_keras_mask", None)


def copy_keras_mask(source: Any, target: Any) -> None:
    """Attaches the mask of `source`, if it has one, to `target`. Why and breaks first: as `keras_mask`."""
    if keras_mask(source) is not None:
        target._keras_mask = keras_mask(source)


COMPILED_LOSS_NAMES = ("loss", "_compile_loss")
"""Attributes under which Keras itself keeps what `compile(loss=...)` was given, which `loss_entries` covers."""


def loss_entries(model: keras.Model) -> list[Any]:
    """The built loss terms of a compiled model: a mutable list of (path, loss, loss_weights, name) tuples.

    Why: each term needs its own denominator over all replicas, and Keras resolves strings and functions to loss
    objects only when it has seen the outputs. Empty when the model has no compiled loss or is not built yet.
    Breaks first: tests/training/test_contract.py, the table of losses.
    """
    compile_loss = getattr(model, "_compile_loss", None)
    if compile_loss is None:
        return []
    return compile_loss._flat_losses or []


def output_loss_trackers(model: keras.Model) -> list[keras.metrics.Mean]:
    """The `Mean` behind the log entry of each output's loss; empty for a single output.

    Why: they are among the public `metrics`, but cannot be told apart from the user's there.
    Breaks first: tests/training/test_contract.py, the case several inputs and outputs.
    """
    compile_loss = getattr(model, "_compile_loss", None)
    return [] if compile_loss is None else list(compile_loss.metrics)


def lists_of_losses(layers: Sequence[keras.layers.Layer]) -> list[list[Any]]:
    """The lists, to be changed in place, in which layers keep what `add_loss` and activity regularizers have left.

    Why: `losses` is a copy. Breaks first: tests/programs/scripts/point_net.py.
    """
    return [layer._losses for layer in layers]


def count_added_losses(model: keras.Model) -> int:
    """How many leading entries of `model.losses` come from `add_loss`; the others are weight regularizers.

    Why: `model.losses` is one list, and only the first kind depends on the batch.
    Breaks first: tests/training/test_contract.py, the cases add_loss.
    """
    return len(model.losses) - len(model._get_regularization_losses())


def replace_added_loss_rule(model: keras.Model, rule: Callable[[Any], Any]) -> None:
    """Puts `rule(loss)` in the place of Keras's way to aggregate one entry of `model.losses`.

    Why: Keras divides every such entry by the number of replicas, which is wrong for sums and uneven batches.
    Breaks first: tests/training/test_contract.py, the cases add_loss.
    """
    model._aggregate_additional_loss = rule


def call_model(model: keras.Model, x: Any, *, training: bool) -> Any:
    """Calls `model` as Keras's own steps do: a user's `call` may lack the `training` argument.

    Why: the signature is known to Keras only. Breaks first: tests/training/test_contract.py, the table of models.
    """
    return model(x, training=training) if model._call_has_training_arg else model(x)


def compute_loss(model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any, *, training: bool) -> Any:
    """Calls `model.compute_loss`, a user's override included, which may lack the `training` argument.

    Why and breaks first: as `call_model`.
    """
    return model._compute_loss(x, y, y_pred, sample_weight, training=training)


def metric_function(metric: keras.metrics.Metric) -> Any:
    """The function that a metric averages over examples; None for metrics of another kind.

    Why: it may be the user's own, in a class of Keras's. Breaks first: tests/training/test_vouching.py.
    """
    return getattr(metric, "_fn", None)


def arguments_of_function(owner: keras.metrics.Metric | keras.losses.Loss) -> dict[str, Any]:
    """What the function of a metric or loss gets besides labels and predictions. Why: as `metric_function`."""
    return dict(getattr(owner, "_fn_kwargs", {}))


def axes_of(owner: Any) -> list[Any]:
    """What a layer, loss or metric of Keras was told to work along, by whatever name.

    Why: attention keeps its axes under a name of its own, and `get_config` fails, or warns, where a part of the owner,
    such as a regularizer, is somebody's own.
    Breaks first: tests/training/test_vouching.py.
    """
    return [getattr(owner, name, None) for name in ("axis", "axes", "_attention_axes")]


def all_metrics(model: keras.Model) -> list[keras.metrics.Metric]:
    """The metrics of a compiled model one by one, where `model.metrics` has one object for those of `compile`.

    Why and breaks first: as `metric_function`.
    """
    compiled = getattr(model, "_compile_metrics", None)
    inner = compiled.metrics if compiled is not None and compiled.built else ()
    return [*(metric for metric in model.metrics if metric is not compiled), *inner]


def loss_tracker(model: keras.Model) -> keras.metrics.Metric:
    """The `Mean` behind the log entry "loss" of a compiled model.

    Why: `model.metrics` lists it first, but only by convention.
    """
    return model._loss_tracker


def batch_moments(layer: keras.layers.BatchNormalization) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Keras's own `(inputs, mask) -> (mean, variance)` of one BatchNormalization layer."""
    return type(layer)._moments.__get__(layer)


def replace_batch_moments(layer: keras.layers.BatchNormalization, moments: Callable[[Any, Any], Any]) -> None:
    """Computes the batch statistics of one BatchNormalization layer with `moments(inputs, mask)`.

    Why: everything else in the layer (moving averages, renorm, dtypes) is right as it is.
    Breaks first: tests/training/test_batch_norm.py.
    """
    layer._moments = moments


def reduction_axes(layer: keras.layers.BatchNormalization) -> list[int]:
    """The axes over which a built BatchNormalization layer averages."""
    return list(layer._reduction_axes)


def build_from_spec(model: keras.Model, data_spec: Any) -> None:
    """Builds the layers, losses, metrics and optimizer of `model` from shapes alone.

    Why: Keras builds from the first batch, which it reduces over replicas eagerly; several workers crash on it and
    an uneven batch crashes on one (`ValueError` converting `PerReplica`).
    Breaks first: tests/training/test_workers.py.
    """
    model._symbolic_build(data_batch=data_spec)


def replace_symbolic_build(model: keras.Model, build: Callable[..., None]) -> None:
    """Calls `build(iterator=None, data_batch=None)` where `fit` and the others would build the model.

    Why and breaks first: as `build_from_spec`.
    """
    model._maybe_symbolic_build = build


def hook_gradients(optimizer: keras.optimizers.Optimizer, before_clipping: Callable[[list[Any]], list[Any]]) -> None:
    """Runs `before_clipping(gradients)` once per update, and switches off Keras's own, later, reduction.

    Why: Keras clips before it reduces. `_clip_gradients` is the first thing it does with the gradients of an
    update, inside the branch that gradient accumulation takes; nothing public is called at that point.
    Breaks first: tests/training/test_contract.py, the rows clipping and accumulation.
    """
    clip = type(optimizer)._clip_gradients.__get__(optimizer)
    optimizer._clip_gradients = lambda gradients: clip(before_clipping(list(gradients)))
    optimizer._all_reduce_sum_gradients = list


def hook_averages(optimizer: keras.optimizers.Optimizer, when: Callable[[Callable[[], None]], None]) -> None:
    """Moves and copies back the EMA of the weights only where `when(action)` runs the action.

    Why: with gradient accumulation Keras moves the average on every micro-step, though the weights did not move.
    Breaks first: tests/training/test_contract.py, the row EMA with accumulation.
    """
    move = type(optimizer)._update_model_variables_moving_average.__get__(optimizer)
    copy = type(optimizer)._overwrite_model_variables_with_average_value.__get__(optimizer)
    optimizer._update_model_variables_moving_average = lambda variables: when(lambda: move(variables))
    optimizer._overwrite_model_variables_with_average_value = lambda variables: when(lambda: copy(variables))


def clips_gradients(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether Keras clips what it is given. Why: as `hook_gradients`."""
    return any(value is not None for value in (optimizer.clipnorm, optimizer.global_clipnorm, optimizer.clipvalue))


def micro_step_counter(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """The variable that counts calls of `apply`: micro-steps, where the public `iterations` counts updates."""
    return optimizer._iterations


def trained_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable] | None:
    """What a built optimizer updates, in its order; None before.

    Why: they are not among the public `variables`, and a compression keeps something of each one's gradient.
    Breaks first: tests/training/compression/test_training.py.
    """
    return list(optimizer._trainable_variables) if optimizer.built else None


def gradient_accumulators(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """The sums of gradients since the last update; empty without accumulation, or before the optimizer is built.

    Why: they are among the public `variables`, but cannot be told apart from momenta there.
    Breaks first: tests/training/test_contract.py, the row accumulation.
    """
    held = getattr(optimizer, "_accumulated_gradients", [])
    return [variable for variable in held if variable is not None]


def replace_auto_jit_compile(model: keras.Model, decide: Callable[[], bool]) -> None:
    """Lets `decide()` answer what `compile(jit_compile="auto")` means for `model`.

    Why: Keras switches XLA off without a word when a model was created under a strategy.
    Breaks first: tests/training/test_xla.py.
    """
    model._resolve_auto_jit_compile = decide


def profiled_batches(callback: keras.callbacks.TensorBoard) -> tuple[int, int]:
    """The first and the last batch that `callback` profiles; both 0 for none.

    Why: the public argument `profile_batch` is kept only in this form.
    Breaks first: tests/training/callbacks/test_step_counted.py::test_tensorboard.
    """
    return callback._start_batch, callback._stop_batch


def profile_batches(callback: keras.callbacks.TensorBoard, batches: tuple[int, int]) -> None:
    """Lets `callback` profile other batches. Why and breaks first: as `profiled_batches`."""
    callback._start_batch, callback._stop_batch = batches


def scalar_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """The optimizer's own counters and rates, which every replica assigns alike.

    Why: see `write_locally`.
    """
    own = [optimizer._iterations, getattr(optimizer, "_learning_rate", None)]
    return [variable for variable in own if isinstance(variable, keras.Variable)]


def has_plain_rate(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether an optimizer's learning rate is a number that may be set, and no schedule or function.

    Why: `optimizer.learning_rate` is a number either way, and `get_config` fails where a schedule has none of its own,
    as those that people write in a script.
    Breaks first: tests/training/recovery/test_resume.py.
    """
    return isinstance(getattr(optimizer, "_learning_rate", None), keras.Variable)
