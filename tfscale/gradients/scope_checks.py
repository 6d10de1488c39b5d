"""Was everything that a step updates made under the strategy's scope?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.foreign import is_of_keras, set_by_user
from tfscale.framework.models import flat_layers
from tfscale.framework.optimizers import trained_variables
from tfscale.framework.replicas import is_replicated
from tfscale.gradients.updaters import held_optimizers, innermost

# What Keras calls for each batch, and the step that it runs.
_FUNCTIONS = {
    "make_train_function": "train_step",
    "make_test_function": "test_step",
    "make_predict_function": "predict_step",
}


@contextlib.contextmanager
def scope_of(strategy: tf.distribute.Strategy) -> Iterator[Any]:
    """`strategy.scope()`, which says so where something inside of it has ended it.

    Raises:
        ModelError: At its end; TensorFlow's "pop from empty list" in its place.
    """
    is_lost = False
    try:
        with strategy.scope() as entered:
            try:
                yield entered
            finally:
                is_lost = tf.distribute.get_strategy() is not strategy
    except IndexError as error:
        if not is_lost:
            raise
        raise ModelError(
            "A scope must last as long as its `with`: what is made after it was lost is on one device.\n"
            "Received: `keras.backend.clear_session()` inside of it, or something that calls it. Call that before "
            "`with dp.scope():`."
        ) from error


def check_model(model: Any, strategy: tf.distribute.Strategy) -> None:
    """Refuses what is no model of this strategy.

    Raises:
        ModelError: Also when its optimizers were made elsewhere.
    """
    if not isinstance(model, keras.Model):
        raise ModelError(f"`prepare` takes a keras.Model.\nReceived: {model!r} of type {type(model).__name__}.")
    if model.distribute_strategy is not strategy:
        raise ModelError(
            "The model must be created under the strategy's scope.\n"
            f"Received: model {model.name!r}, created outside of it. Build it inside `with dp.scope():`."
        )
    check_inside_scope(model.variables, "model", model.name)
    check_optimizers(model)
    _refuse_own_functions(model)


def _refuse_own_functions(model: keras.Model) -> None:
    for name in _FUNCTIONS:
        if set_by_user(model, name) is not None or not is_of_keras(getattr(type(model), name)):
            raise ModelError(
                "A model may have steps of its own; the functions that run them are tfscale's.\n"
                f"Received: {name!r} of {type(model).__name__}'s own. Put what it computes into "
                f"`{_FUNCTIONS[name]}`, and what it does around a step into a callback."
            )


def refuse_stateful_layers(model: keras.Model, num_replicas: int) -> None:
    """Refuses layers that keep a state for each row of a batch of one size.

    Raises:
        ModelError: Naming the layer.
    """
    stateful = [layer.name for layer in flat_layers(model) if getattr(layer, "stateful", False)]
    if stateful and num_replicas > 1:
        raise ModelError(
            "A stateful RNN keeps a state for each row of a batch of one size, and cannot be divided over replicas.\n"
            f"Received: layer {stateful[0]!r} with stateful=True, and {num_replicas} replicas. Train it on one device, "
            "or with stateful=False; make one that is only asked for `predict` outside of the scope."
        )


def check_optimizers(model: keras.Model) -> None:
    """Refuses a model whose optimizers were made outside of the scope.

    Raises:
        ModelError: Naming the optimizer.
    """
    for optimizer in held_optimizers(model):
        check_inside_scope(innermost(optimizer).variables, "optimizer", optimizer.name)


def check_built_inside(model: keras.Model) -> None:
    """Refuses a model whose layers or metrics got their variables outside of the scope, after it was prepared.

    Each replica would update such a variable once more, or all would wait for one another.

    Raises:
        ModelError: Naming the first of them.
    """
    outside = _paths_outside(model.variables)
    if outside:
        raise ModelError(
            "A model must get its variables under the strategy's scope.\n"
            f"Received: model {model.name!r}, whose variable {outside[0]!r} was made outside of it, when it was "
            "built or first called. Do that inside `with dp.scope():`, or begin the model with keras.Input, "
            "so that it is built as it is made."
        )
    if model.compiled:
        check_inside_scope(model.metrics_variables, "metric", "a metric")


def check_updated(optimizer: keras.optimizers.Optimizer, variables: Any) -> None:
    """Refuses the update of variables that have no copy on each replica: each would update them once more.

    Variables that an optimizer was not built with are Keras's to refuse.

    Args:
        optimizer: That updates them.
        variables: A sequence, or None for all that it was built with.

    Raises:
        ModelError: Naming the first of them.
    """
    given = [each for each in variables or () if isinstance(each, keras.Variable) and not is_replicated(each)]
    if not given:
        return
    built_with = trained_variables(innermost(optimizer))
    outside = [each.path for each in given if not built_with or any(each is known for known in built_with)]
    if outside:
        raise ModelError(
            "What an optimizer updates must be made under the strategy's scope.\n"
            f"Received: variable {outside[0]!r}, made outside of it, in an update by {optimizer.name!r}. Build the "
            "model, or call it for the first time, inside `with dp.scope():`."
        )


def check_inside_scope(variables: Iterable[keras.Variable], kind: str, name: str) -> None:
    """Refuses variables that have no copy on each replica.

    Args:
        variables: Of the object.
        kind: What it is, for the message.
        name: Of the object.

    Raises:
        ModelError: Naming the first of them.
    """
    outside = _paths_outside(variables)
    if outside:
        raise ModelError(
            f"The {kind} must be created under the strategy's scope.\n"
            f"Received: {name!r}, whose variable {outside[0]!r} was created outside of it. "
            f"Create the {kind}, and call compile, inside `with dp.scope():`."
        )


def _paths_outside(variables: Iterable[keras.Variable]) -> list[str]:
    return [variable.path for variable in variables if not is_replicated(variable)]


def refuse_loop_inside_scope(variable: tf.Variable) -> None:
    """Refuses the gradient of a variable under the scope: it says neither of which replica's, nor of which rows.

    Raises:
        ModelError: Always.
    """
    raise ModelError(
        "A loop by hand, which computes gradients itself, cannot run inside of the strategy's scope.\n"
        f"Received: a gradient of {variable.name!r} inside `with dp.scope():`. Make models, optimizers and metrics in "
        "there, and put the loop after the `with` block; or train with `fit`, with a `train_step` of your own."
    )


def refuse_optimizer_outside(variable: tf.Variable) -> None:
    """Refuses an update by an optimizer that knows nothing of the variable's copies.

    Raises:
        ModelError: Always.
    """
    raise ModelError(
        "The optimizer must be created under the strategy's scope.\n"
        f"Received: an update of {variable.name!r} by one that was created outside of it. "
        "Create the optimizer inside `with dp.scope():`."
    )
