"""What does a recipe become on N replicas, both ways: with the batch kept, and with the batch grown?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tfscale.errors import BatchError, ScalingError
from tfscale.scaling.batch_plan import BatchPlan, check_count
from tfscale.scaling.hyperparameters import scale_hyperparameters
from tfscale.scaling.knob import UNCHANGED, ScaledKnob
from tfscale.scaling.optimizer_table import BASE_KNOBS, OPTIMIZERS, OptimizerLaws
from tfscale.scaling.ratio import plain
from tfscale.scaling.recipe import Recipe
from tfscale.scaling.rules import AdaScaleRule, ScalingRule, resolve_rule
from tfscale.scaling.step_counts import scale_batch_norm_momentum

BATCH_NORM_MOMENTUM = 0.99  # Keras's default.
SCHEDULE_WARMUP = "schedule.warmup_steps"


@dataclass(frozen=True)
class TunedRun:
    """What was tuned for one replica, and for how long it runs.

    Args:
        optimizer: The class's name, as Keras spells it.
        knobs: The values of those of its knobs that differ from Keras's defaults.
        recipe: The rule of the rate, the warm-up, the batch that all this was tuned for, and the examples in an epoch.
        epochs: Length of the run; None when it is not known.
        decay_steps: Length of its learning-rate schedule in steps; None when it has none.
        has_batch_norm: Whether the model has BatchNormalization.
        warmup_steps: Length of the warm-up that its schedule has, in steps; None when it has none.

    Raises:
        ScalingError: When the optimizer has no such knob.
    """

    optimizer: str
    knobs: Mapping[str, Any]
    recipe: Recipe
    epochs: float | None = None
    decay_steps: int | None = None
    has_batch_norm: bool = False
    warmup_steps: int | None = None

    def __post_init__(self) -> None:
        known = {"learning_rate", *self.laws.knobs, *BASE_KNOBS}
        for name, value in self.knobs.items():
            if name not in known:
                raise ScalingError(
                    f"{self.optimizer} must have the knob that is given.\n"
                    f"Received: {name}={value!r}. Its own are {', '.join(['learning_rate', *self.laws.knobs])}."
                )

    @property
    def laws(self) -> OptimizerLaws:
        """What is known about its optimizer."""
        return OPTIMIZERS[self.optimizer]

    @property
    def resolved_rule(self) -> ScalingRule:
        """The rule of the rate, with "auto" answered."""
        defaults = {name: default for name, (default, _) in self.laws.knobs.items()}
        return resolve_rule(self.recipe.rule, auto=self.laws.rule({**defaults, **self.knobs}))


@dataclass(frozen=True)
class Way:
    """The recipe on N replicas, one way.

    Args:
        title: "keep the batch" or "grow the batch".
        batches: How a step is divided.
        num_examples: Examples in an epoch.
        warmup_steps: Length of the warm-up in its own steps.
        knobs: Every hyper-parameter, before and after.
    """

    title: str
    batches: BatchPlan
    num_examples: int
    warmup_steps: Fraction
    knobs: tuple[ScaledKnob, ...]

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one epoch, a smaller last one included."""
        return self.batches.steps_per_epoch(self.num_examples)


def derive_ways(
    run: TunedRun,
    *,
    num_replicas: int,
    per_replica_batch: int | None = None,
    global_batch: int | None = None,
    micro_batch: int | None = None,
) -> tuple[Way | None, Way]:
    """Returns what becomes of a recipe with the batch kept, and with the batch grown.

    Kept, the reference batch is split over the replicas. Grown, each replica takes `per_replica_batch`; with a
    `global_batch` all take that, or, when it is the reference batch itself, each of them takes as many.

    Args:
        run: What was tuned; its recipe knows the examples in an epoch, and its batch if that is not the one given.
        num_replicas: Replicas.
        per_replica_batch: Examples of one replica in one step.
        global_batch: Examples of all, in its place.
        micro_batch: Most examples of one pass on one replica.

    Returns:
        The kept one, None when its batch is smaller than the number of replicas; and the grown one.

    Raises:
        BatchError: When the batches are none, not exactly one of the two is given, or the recipe does not know the
            examples in an epoch.
        ScalingError: When the recipe cannot be re-derived.
    """
    if (per_replica_batch is None) == (global_batch is None):
        raise BatchError(
            "Exactly one of `per_replica_batch` and `global_batch` must be given.\n"
            f"Received: per_replica_batch={per_replica_batch!r}, global_batch={global_batch!r}. "
            "Give the batch that the recipe was tuned for as reference_batch."
        )
    given = BatchPlan(per_replica_batch=per_replica_batch, global_batch=global_batch, num_replicas=num_replicas)
    reference = BatchPlan(global_batch=run.recipe.reference_batch or given.reference_batch, num_replicas=1).global_batch
    if global_batch == reference:
        per_replica_batch, global_batch = reference, None
    grown = BatchPlan(
        per_replica_batch=per_replica_batch,
        global_batch=global_batch,
        num_replicas=num_replicas,
        micro_batch=micro_batch,
        reference_batch=reference,
    )
    kept = None
    if reference >= num_replicas:
        kept = BatchPlan(global_batch=reference, num_replicas=num_replicas, micro_batch=micro_batch)
    return (
        None if kept is None else _derive_way("keep the batch", kept, run),
        _derive_way("grow the batch", grown, run),
    )


def _derive_way(title: str, batches: BatchPlan, run: TunedRun) -> Way:
    ratio = batches.batch_ratio
    warmup_steps = run.recipe.warmup_steps(batches, run.resolved_rule)
    config = dict(run.knobs, use_ema=bool({"ema_momentum", "ema_overwrite_frequency"} & run.knobs.keys()))
    scaled = scale_hyperparameters(
        {"class_name": run.optimizer, "config": config},
        ratio,
        rule=run.recipe.rule,
        warmup_steps=warmup_steps,
        adam_beta_1=run.recipe.adam_beta_1,
    )
    knobs = [knob for knob in scaled.knobs if knob.name in run.knobs or _is_set(knob)]
    knobs[1:1] = _schedule_rows(run, ratio)
    if run.has_batch_norm:
        moving = scale_batch_norm_momentum(BATCH_NORM_MOMENTUM, ratio)
        knobs.append(
            ScaledKnob("BatchNormalization momentum", moving.unit, moving.old, moving.new, moving.rule, moving.reason)
        )
    num_examples = check_count("examples_per_epoch", run.recipe.examples_per_epoch)
    return Way(title, batches, num_examples, warmup_steps / ratio, tuple(knobs))


def _schedule_rows(run: TunedRun, ratio: Fraction) -> Iterator[ScaledKnob]:
    for name, old in (("schedule", run.decay_steps), (SCHEDULE_WARMUP, run.warmup_steps)):
        if old is None:
            continue
        if isinstance(run.resolved_rule, AdaScaleRule):
            reason = "counts steps of the reference run, and advances by the gain"
            yield ScaledKnob(name, "steps", old, old, UNCHANGED, reason)
        else:
            yield ScaledKnob(name, "steps", old, plain(old / ratio), "/ r", "the schedule s is evaluated at step * r")


def _is_set(knob: ScaledKnob) -> bool:
    """Whether a knob that was not given has an effect by default; one of 0 is switched off."""
    return knob.old != 0
