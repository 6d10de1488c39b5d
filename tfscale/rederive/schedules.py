"""What does a recipe's learning-rate schedule become when steps are larger and fewer?"""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ScalingError
from tfscale.scaling import resolve_rule
from tfscale.scaling.ratio import check_ratio, exact_fraction, plain
from tfscale.scaling.rules import NAMED_RULES, rate_factor


@keras.saving.register_keras_serializable("tfscale")
class ReplicaSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule of the reference run, for a batch that is `batch_ratio` times larger.

    `rate(t) = m(p) * schedule(p)` with the position `p = t * batch_ratio` in steps of the reference run, and the
    multiplier `m(p) = 1 + (f - 1) * min(1, p / warmup_steps)`, where f is the rule's factor for the ratio. The position
    is a fraction where it falls between two steps of the reference run; nothing is rounded, so a decay every 3 steps is
    right on 8 replicas too. float32 holds positions exactly up to 2^24 steps.

    Args:
        schedule: The recipe's schedule, or its constant rate as a float.
        batch_ratio: Global batch / reference batch, positive; an int, float or fraction.
        rule: `"linear"` (f = r), `"sqrt"` (f = sqrt(r)), `"none"` (f = 1), a positive factor, or a function of r.
        warmup_steps: Length of the warm-up from the reference rate, in steps of the reference run; 0 for none.

    Raises:
        ScalingError: When the ratio is not positive, the rule unknown, the warm-up negative, or the schedule is, or
            holds, a `ReplicaSchedule` already.

    Example:
        >>> import keras, tfscale
        >>> cosine = keras.optimizers.schedules.CosineDecay(0.1, decay_steps=1000)
        >>> grown = tfscale.ReplicaSchedule(cosine, batch_ratio=8)
        >>> round(float(grown(0)), 6), round(float(cosine(400)), 6), round(float(grown(50)) / 8, 6)
        (0.8, 0.065451, 0.065451)

    Reference:
        Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv:1706.02677, for the warm-up.
    """

    def __init__(self, schedule: Any, batch_ratio: Any, *, rule: Any = "linear", warmup_steps: Any = 0):
        self.schedule = _check_schedule(schedule)
        self.batch_ratio = check_ratio(batch_ratio)
        resolved = resolve_rule(rule)
        self.factor = rate_factor(resolved, float(self.batch_ratio))
        # What a config can hold: a rule's name, or else what it gave.
        self.rule = resolved.name if NAMED_RULES.get(resolved.name) == resolved else self.factor
        self.warmup_steps = check_warmup(warmup_steps)

    def __call__(self, step: Any) -> tf.Tensor:
        """Returns the rate at `step`, a scalar tensor in the dtype of the schedule.

        Args:
            step: Steps taken so far, a number, tensor or variable.
        """
        position = tf.cast(tf.cast(step, tf.float64) * float(self.batch_ratio), tf.float32)
        rate = self.schedule(position) if callable(self.schedule) else self.schedule
        rate = tf.convert_to_tensor(rate, dtype=None if tf.is_tensor(rate) else keras.config.floatx())
        risen = 1.0
        if self.warmup_steps:
            risen = tf.minimum(position / float(self.warmup_steps), 1.0)
        return rate * tf.cast(1.0 + (self.factor - 1.0) * risen, rate.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments; a rule that is a function is kept as the factor it gave."""
        is_plain = isinstance(self.schedule, float)
        return {
            "schedule": self.schedule if is_plain else keras.saving.serialize_keras_object(self.schedule),
            "batch_ratio": plain(self.batch_ratio),
            "rule": self.rule,
            "warmup_steps": plain(self.warmup_steps),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ReplicaSchedule:
        """Makes a schedule of `get_config`'s result."""
        config = dict(config)
        if isinstance(config["schedule"], dict):
            config["schedule"] = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(**config)


@keras.saving.register_keras_serializable("tfscale")
class StepDecay(keras.optimizers.schedules.LearningRateSchedule):
    """The rate falls by a factor at regular intervals.

    `rate(t) = initial_learning_rate * multiplier ^ floor(t / interval)`

    Inside a `ReplicaSchedule` t is a position in the reference run, so the decay comes at the right example for any
    interval, also one shorter than a step of the larger batch: then several decays fall into one step. Sony's Neural
    Network Console has this schedule, divides the interval by the number of GPUs, and cannot go below one.

    Args:
        initial_learning_rate: The rate at the start, a positive float.
        multiplier: The factor at each decay, positive.
        interval: Steps between two decays, positive; a fraction is allowed.

    Raises:
        ScalingError: When an argument is not positive.

    Example:
        >>> import tfscale
        >>> decay = tfscale.StepDecay(0.1, multiplier=0.5, interval=3)
        >>> [round(float(decay(step)), 4) for step in (0, 2, 3, 6)]
        [0.1, 0.1, 0.05, 0.025]
        >>> grown = tfscale.ReplicaSchedule(decay, batch_ratio=8, rule="none")
        >>> [round(float(grown(step)), 5) for step in (0, 1, 2)]
        [0.1, 0.025, 0.00313]
    """

    def __init__(self, initial_learning_rate: Any, multiplier: Any, interval: Any):
        given = {"initial_learning_rate": initial_learning_rate, "multiplier": multiplier, "interval": interval}
        for name, value in given.items():
            if not _is_number(value) or value <= 0:
                raise ScalingError(
                    f"`{name}` must be a positive number.\nReceived: {name}={value!r}. "
                    "Give, for example, StepDecay(0.1, multiplier=0.5, interval=1000)."
                )
        self.initial_learning_rate = float(initial_learning_rate)
        self.multiplier = float(multiplier)
        self.interval = plain(exact_fraction(interval))

    def __call__(self, step: Any) -> tf.Tensor:
        """Returns the rate at `step`, a float32 scalar tensor."""
        decays = tf.floor(tf.cast(step, tf.float64) / self.interval)
        return tf.cast(self.initial_learning_rate * tf.pow(tf.cast(self.multiplier, tf.float64), decays), tf.float32)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "multiplier": self.multiplier,
            "interval": self.interval,
        }


def _check_schedule(schedule: Any) -> Any:
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        _refuse_compensated(schedule)
        return schedule
    if _is_number(schedule) and schedule >= 0:
        return float(schedule)
    raise ScalingError(
        "`schedule` must be a Keras LearningRateSchedule or a rate of 0 or more.\n"
        f"Received: schedule={schedule!r}. A function of the step can be put into a LearningRateSchedule of its own."
    )


def _refuse_compensated(schedule: keras.optimizers.schedules.LearningRateSchedule) -> None:
    """Refuses a `ReplicaSchedule` at any depth: stretched twice, a schedule would run r times too fast."""
    if isinstance(schedule, ReplicaSchedule):
        raise ScalingError(
            "A schedule must be re-derived for the batch only once.\n"
            f"Received: a ReplicaSchedule with batch_ratio={float(schedule.batch_ratio):g}. Pass the recipe's own "
            "schedule, and the ratio from its reference batch to the final batch."
        )
    for inner in keras.tree.flatten(list(vars(schedule).values())):
        if isinstance(inner, keras.optimizers.schedules.LearningRateSchedule):
            _refuse_compensated(inner)


def check_warmup(warmup_steps: Any) -> Fraction:
    """Returns the length of a warm-up in steps of the reference run, exactly.

    Raises:
        ScalingError: When it is no number, or below 0.
    """
    if not _is_number(warmup_steps) or warmup_steps < 0:
        raise ScalingError(
            "`warmup_steps` must be a number of reference steps, 0 or more.\n"
            f"Received: warmup_steps={warmup_steps!r}. Use 0 for no warm-up."
        )
    return exact_fraction(warmup_steps)


def _is_number(value: Any) -> bool:
    # bool is an int to Python; a rate of True is a mistake.
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
