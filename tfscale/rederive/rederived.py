"""How is an optimizer made anew for a larger batch?"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ScalingError
from tfscale.gradients.adascale import AdaScaleSGD
from tfscale.gradients.route import GradientRoute
from tfscale.gradients.updaters import innermost
from tfscale.rederive.schedules import ReplicaSchedule
from tfscale.replicas.owners import Fact
from tfscale.scaling import BatchPlan, Recipe, ScaledKnob, resolve_rule, scale_hyperparameters
from tfscale.scaling.rules import AdaScaleRule, NoRule
from tfscale.scaling.schedule_config import ADASCALE, copy_config

# Whether it was made here: its config alone would not tell.
REDERIVED = Fact[bool](GradientRoute, "rederived")


def rederive_optimizer(
    optimizer: Any, recipe: Recipe, plan: BatchPlan, strategy: tf.distribute.Strategy
) -> tuple[keras.optimizers.Optimizer, tuple[ScaledKnob, ...]]:
    """Returns an optimizer of the same class for the batches of `plan`, and one row per hyper-parameter.

    At batch ratio 1 it is the same object.

    Args:
        optimizer: Any Keras optimizer that has not trained yet, or its name.
        recipe: The rule and the warm-up.
        plan: The batches.
        strategy: Under its scope the new one is created.

    Raises:
        ScalingError: When it is no optimizer, was re-derived before, has trained already, cannot be made from its own
            config, or a hyper-parameter cannot be re-derived.
    """
    if isinstance(optimizer, str):
        with strategy.scope():
            optimizer = keras.optimizers.get(optimizer)
    _check_optimizer(optimizer)
    ratio = plan.batch_ratio
    scaled = scale_hyperparameters(
        _config_of(optimizer),
        ratio,
        rule=recipe.rule,
        warmup_steps=functools.partial(recipe.warmup_steps, plan),
        adam_beta_1=recipe.adam_beta_1,
    )
    if ratio == 1:
        return optimizer, scaled.knobs
    if optimizer.built:
        raise ScalingError(
            "An optimizer must be re-derived before it trains: the new one starts without state.\n"
            f"Received: {optimizer.name!r}, which was built already. Pass one that was just made."
        )
    config = scaled.config
    if resolve_rule(recipe.rule, auto=NoRule()) == AdaScaleRule():
        _check_measurable(optimizer, strategy)
        config = _with_adascale(config, plan.reference_batch)
    with strategy.scope():
        made = _make_anew(optimizer, config)
    REDERIVED.set(made, True)
    return made, scaled.knobs


def was_rederived(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether `rederive_optimizer` made it, or could have: an AdaScaleSGD scales its own rate."""
    return optimizer in REDERIVED or isinstance(innermost(optimizer), AdaScaleSGD)


def rederive_schedule(schedule: Any, recipe: Recipe, plan: BatchPlan) -> tuple[Any, tuple[ScaledKnob, ...]]:
    """Returns a `ReplicaSchedule` around a schedule or a rate, or at batch ratio 1 the same object.

    Args:
        schedule: A Keras schedule, or a constant rate.
        recipe: The rule and the warm-up.
        plan: The batches.

    Raises:
        ScalingError: When the rule goes by the optimizer, or as `ReplicaSchedule`.
    """
    ratio, rule = plan.batch_ratio, recipe.rule_of_schedule(plan)
    if ratio == 1:
        return schedule, ()
    warmup_steps = recipe.warmup_steps(plan, rule)
    made = ReplicaSchedule(schedule, ratio, rule=rule, warmup_steps=warmup_steps)
    old: Any = type(schedule).__name__ if callable(schedule) else schedule
    new = f"{made.factor:.6g} * {old}(step * {float(ratio):.6g})" if callable(schedule) else old * made.factor
    return made, (ScaledKnob("schedule", "per step", old, new, "f s(step r)", f"rule {rule.name!r}"),)


def _check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ScalingError(
            "`dp.optimizer` takes a Keras optimizer or its name.\n"
            f"Received: {optimizer!r}. Give, for example, keras.optimizers.SGD(0.1)."
        )
    if was_rederived(optimizer):
        raise ScalingError(
            "An optimizer must be re-derived for the batch only once.\n"
            f"Received: {optimizer.name!r}, which came from `dp.optimizer`. Pass the recipe's own optimizer."
        )


def _check_measurable(optimizer: keras.optimizers.Optimizer, strategy: tf.distribute.Strategy) -> None:
    if strategy.num_replicas_in_sync == 1:
        raise ScalingError(
            "AdaScale measures how much the gradients of the replicas differ, and needs two of them.\n"
            "Received: rule='adascale' on one replica. Use more replicas, or rule='linear'."
        )
    if type(innermost(optimizer)) is not keras.optimizers.SGD:
        raise ScalingError(
            "Rule 'adascale' is for SGD: it was derived for steps proportional to the gradient.\n"
            f"Received: a {type(innermost(optimizer)).__name__}. Use keras.optimizers.SGD, or rule='auto'."
        )


def _with_adascale(config: dict[str, Any], reference_batch: int) -> dict[str, Any]:
    """Puts an `AdaScaleSGD` in the place of the SGD in a config, inside a `LossScaleOptimizer` too."""
    inside = dict(config["config"])
    if "inner_optimizer" in inside:
        inside["inner_optimizer"] = _with_adascale(inside["inner_optimizer"], reference_batch)
        return {**config, "config": inside}
    inside["reference_batch"] = reference_batch
    return {
        "module": AdaScaleSGD.__module__,
        "class_name": AdaScaleSGD.__name__,
        "config": inside,
        "registered_name": ADASCALE,
    }


def _config_of(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    try:
        return keras.saving.serialize_keras_object(optimizer)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ScalingError(
            "An optimizer is re-derived from its `get_config`, and that of its schedule.\n"
            f"Received: a {type(optimizer).__name__}, for which Keras says: {error} Write the `get_config`; or leave "
            "out `dp.optimizer`, and give the optimizer `dp.schedule(...)` and the other hyper-parameters yourself."
        ) from error


def _make_anew(optimizer: keras.optimizers.Optimizer, config: dict[str, Any]) -> keras.optimizers.Optimizer:
    cls = AdaScaleSGD if config.get("registered_name") == ADASCALE else type(optimizer)
    classes = {cls.__name__: cls for cls in _classes(optimizer, set()) if not cls.__module__.startswith("keras.")}
    try:
        # Not keras.optimizers.deserialize, which does not know Lamb (Keras 3.15). `from_config` writes into what it
        # gets. The scope is for classes of the user's own that are not registered.
        with keras.saving.custom_object_scope(classes):
            return cls.from_config(copy_config(config["config"]))
    except ScalingError:
        raise
    except (TypeError, ValueError) as error:
        raise ScalingError(
            "An optimizer must be such that `from_config` makes it from `get_config`.\n"
            f"Received: a {type(optimizer).__name__}, for which Keras says: {error}. Correct its get_config, put a "
            "rate that is a plain function into a LearningRateSchedule, or set its hyper-parameters yourself."
        ) from error


def _classes(part: Any, seen: set[int]) -> Iterator[type]:
    """Yields the classes of an optimizer, of its schedule, and of those inside them."""
    kinds = (keras.optimizers.Optimizer, keras.optimizers.schedules.LearningRateSchedule)
    if id(part) not in seen:
        seen.add(id(part))
        if isinstance(part, kinds):
            yield type(part)
        for value in vars(part).values() if hasattr(part, "__dict__") else ():
            for inner in value if isinstance(value, list | tuple) else [value]:
                if isinstance(inner, kinds):
                    yield from _classes(inner, seen)
