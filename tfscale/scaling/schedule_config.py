"""How is a learning-rate schedule re-derived, in a config?

Not by rewriting its arguments: whatever a schedule s counts in steps, at any depth of nesting, known or not, the whole
of it is stretched at once by evaluating it elsewhere. The config is wrapped in that of `ReplicaSchedule`,

    a(t) = f * s(t * r)

with r the batch ratio and f the factor of the rate. It is exact for every r, and never a step count of zero.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from tfscale.errors import ScalingError
from tfscale.scaling.knob import ScaledKnob
from tfscale.scaling.laws import Growth
from tfscale.scaling.ratio import plain
from tfscale.scaling.rules import NAMED_RULES

CLASS_NAME = "ReplicaSchedule"
REGISTERED_NAME = f"tfscale>{CLASS_NAME}"
MODULE = "tfscale.rederive.schedules"
ADASCALE = "tfscale>AdaScaleSGD"

# What Keras's own schedules, and ours, count in steps, and which of their arguments are rates.
STEPS = ("boundaries", "decay_steps", "first_decay_steps", "interval", "warmup_steps")
RATES = ("initial_learning_rate", "end_learning_rate", "values", "warmup_target")
KERAS_SCHEDULES = frozenset(
    {
        "CosineDecay",
        "CosineDecayRestarts",
        "ExponentialDecay",
        "InverseTimeDecay",
        "PiecewiseConstantDecay",
        "PolynomialDecay",
    }
)


OWN_SCHEDULES = frozenset({"StepDecay"})


def copy_config(config: Any) -> Any:
    """Returns a copy of a config down to its values, in plain dicts and lists.

    Not `copy.deepcopy`: a list in a config may be one that Keras tracks, which holds its optimizer and all variables.
    """
    if isinstance(config, Mapping):
        return {key: copy_config(value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        copies = [copy_config(value) for value in config]
        return tuple(copies) if isinstance(config, tuple) else copies
    return config


def is_object(value: Any) -> bool:
    """Whether `value` is a serialised object: in the place of a rate, a schedule."""
    return (
        isinstance(value, dict) and isinstance(value.get("config"), dict) and isinstance(value.get("class_name"), str)
    )


def wrap_schedule(schedule: Any, growth: Growth, warmup_steps: Fraction) -> dict[str, Any]:
    """Returns the config of the `ReplicaSchedule` around a schedule's config or a float.

    Its `rule` is "linear", "sqrt" or "none", or else the factor itself as a number, so that the config is always JSON.

    Args:
        schedule: The config of a schedule, or a rate.
        growth: By how much everything grows.
        warmup_steps: Steps of the reference run over which the factor rises from 1.
    """
    rule = growth.rule.name
    return {
        "module": MODULE,
        "class_name": CLASS_NAME,
        "config": {
            "schedule": copy_config(schedule),
            "batch_ratio": plain(growth.ratio),
            "rule": rule if NAMED_RULES.get(rule) == growth.rule else growth.factor,
            "warmup_steps": plain(warmup_steps),
        },
        "registered_name": REGISTERED_NAME,
    }


def refuse_compensated(config: Any) -> None:
    """Refuses a config that was re-derived before.

    Raises:
        ScalingError: When a `ReplicaSchedule` or an optimizer marked with its `batch_ratio` is in it.
    """
    for part in _parts(config):
        name, ratio = part.get("class_name"), part.get("batch_ratio", 1)
        if part.get("registered_name") == ADASCALE or name == "AdaScaleSGD":
            raise ScalingError(
                "An optimizer must be re-derived for the batch only once.\n"
                "Received: an AdaScaleSGD, which scales its rate by itself. Pass the recipe's own SGD."
            )
        if name == CLASS_NAME or part.get("registered_name") == REGISTERED_NAME:
            raise ScalingError(
                "A schedule must be re-derived for the batch only once.\n"
                f"Received: a {CLASS_NAME} in the config. Pass the recipe's own schedule, without {CLASS_NAME}."
            )
        if isinstance(part.get("config"), dict) and ratio != 1:
            raise ScalingError(
                "An optimizer must be re-derived for the batch only once.\n"
                f"Received: the config of {name!r} with batch_ratio={ratio!r}. Pass the recipe's own config, and the "
                "ratio from its reference batch to the final batch."
            )


def schedule_knobs(path: str, schedule: dict[str, Any], growth: Growth) -> Iterator[ScaledKnob]:
    """Yields what a stretched schedule amounts to, per step-counted argument and rate of those that are known."""
    for inner_path, part in _nested(path, schedule):
        name, config = part["class_name"], part["config"]
        listed = name in KERAS_SCHEDULES | OWN_SCHEDULES
        for key in STEPS if listed else ():
            if config.get(key):
                yield ScaledKnob(
                    f"{inner_path}.{key}",
                    "steps",
                    config[key],
                    _each(config[key], lambda steps: plain(Fraction(steps) / growth.ratio)),
                    "/ r",
                    f"{name} is evaluated at step * r",
                )
        # Only of the outermost is the result known to be proportional to its rates.
        for key in RATES if listed and part is schedule else ():
            if config.get(key):
                yield ScaledKnob(
                    f"{inner_path}.{key}",
                    "per step",
                    config[key],
                    _each(config[key], lambda rate: rate * growth.factor),
                    "x f",
                    f"{name} is multiplied by f",
                )


def _each(value: Any, scale: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_each(item, scale) for item in value]
    return scale(value) if isinstance(value, numbers.Real) else value


def _nested(path: str, schedule: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schedule
    for key, value in schedule["config"].items():
        for index, item in enumerate(value if isinstance(value, (list, tuple)) else [value]):
            if is_object(item):
                place = f"{path}.{key}[{index}]" if isinstance(value, (list, tuple)) else f"{path}.{key}"
                yield from _nested(place, item)


def _parts(config: Any) -> Iterator[dict[str, Any]]:
    """Yields every dict in a config, at any depth."""
    if isinstance(config, dict):
        yield config
        for value in config.values():
            yield from _parts(value)
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from _parts(value)
