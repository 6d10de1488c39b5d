"""What do batch, rate and every step-counted knob become? Numbers in, numbers out: standard library only."""

from tfscale.scaling.batch_plan import BatchPlan
from tfscale.scaling.hyperparameters import ScaledHyperparameters, scale_hyperparameters
from tfscale.scaling.knob import ScaledKnob
from tfscale.scaling.recipe import Recipe, describe_recipe
from tfscale.scaling.rules import AdaScaleRule, LinearRule, NoRule, ScalingRule, SqrtRule, resolve_rule
from tfscale.scaling.step_counts import scale_batch_norm_momentum, scale_callback_argument
from tfscale.scaling.warmup import count_warmup_steps, warmup_factor

__all__ = [
    "AdaScaleRule",
    "BatchPlan",
    "LinearRule",
    "NoRule",
    "Recipe",
    "ScaledHyperparameters",
    "ScaledKnob",
    "ScalingRule",
    "SqrtRule",
    "count_warmup_steps",
    "describe_recipe",
    "resolve_rule",
    "scale_batch_norm_momentum",
    "scale_callback_argument",
    "scale_hyperparameters",
    "warmup_factor",
]
