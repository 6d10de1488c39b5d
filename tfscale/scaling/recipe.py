"""What is known about the run that a script's hyper-parameters were tuned for, and what follows for another batch?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from tfscale.errors import ScalingError
from tfscale.scaling.batch_plan import BatchPlan
from tfscale.scaling.knob import ScaledKnob, format_reasons, format_table, format_value
from tfscale.scaling.laws import check_adam_beta_1
from tfscale.scaling.limits import (
    caution_clipping,
    caution_critical_batch,
    caution_range,
    caution_warmup,
    caution_warmups,
    check_clipped_share,
    check_critical_batch,
)
from tfscale.scaling.optimizer_table import OPTIMIZERS, find_optimizer
from tfscale.scaling.ratio import plain, show
from tfscale.scaling.rules import NoRule, ScalingRule, SqrtRule, resolve_rule
from tfscale.scaling.warmup import count_warmup_steps


@dataclass(frozen=True)
class Recipe:
    """What is known of the run that the hyper-parameters were tuned for, and how they follow a larger batch.

    `DataParallel(recipe=...)` takes it. The first four may also be arguments of `DataParallel` by themselves.

    Args:
        reference_batch: The batch for which learning rate, schedule, betas ... were tuned.
        rule: By what factor the learning rate grows; as `scale_hyperparameters`.
        warmup_epochs: Epochs over which the rate rises from the reference rate, or `"auto"`.
        examples_per_epoch: Examples in an epoch; needed for a warm-up only, and to show the steps of an epoch.
        adam_beta_1: What becomes of beta_1 of Adam and its kin: `"keep"`, or `"memory"` for beta_1^r, which remembers
            as many examples. That holds while noise dominates; from half the critical batch on it costs steps (55
            against 33 to a loss of 0.1, AdamW on digits at ratio 16).
        critical_batch: B_crit in examples, where it is known: `print(dp)` warns from half of it on, and says how many
            more examples the batch takes, by `steps = S_min (1 + B_crit / batch)`. It depends on the loss aimed at.
        clipped_share: The share of the steps, from 0 to 1, in which clipping bites, where it is known: above 0.2
            `print(dp)` warns.

    Raises:
        ScalingError: When an argument is none of the above.
        BatchError: When `reference_batch` or `examples_per_epoch` is no positive integer.

    Example:
        >>> from tfscale import BatchPlan, Recipe
        >>> plan = BatchPlan(per_replica_batch=64, num_replicas=8)
        >>> Recipe(adam_beta_1="memory", critical_batch=600).grow(plan).adam_beta_1
        'memory'
    """

    reference_batch: int | None = None
    rule: Any = "auto"
    warmup_epochs: Any = "auto"
    examples_per_epoch: int | None = None
    adam_beta_1: str = "keep"
    critical_batch: float | None = None
    clipped_share: float | None = None

    def __post_init__(self) -> None:
        self.grow(BatchPlan(global_batch=1, num_replicas=1, reference_batch=self.reference_batch))

    def grow(self, plan: BatchPlan) -> BatchGrowth:
        """Returns what follows from it for the batches of a run."""
        return BatchGrowth(
            plan,
            self.rule,
            self.warmup_epochs,
            self.examples_per_epoch,
            self.adam_beta_1,
            self.critical_batch,
            self.clipped_share,
        )


@dataclass(frozen=True)
class BatchGrowth:
    """The batches of a script's run, and how its hyper-parameters are to follow from those of the reference run.

    Args:
        plan: The batches.
        rule: As `scale_hyperparameters`.
        warmup_epochs: As `count_warmup_steps`.
        examples_per_epoch: Examples in an epoch, needed for a warm-up only.
        adam_beta_1: As `Recipe`.
        critical_batch: As `Recipe`.
        clipped_share: As `Recipe`.

    Raises:
        ScalingError: When the rule, the warm-up or one of the last three is none.
        BatchError: When `examples_per_epoch` is no positive integer.
    """

    plan: BatchPlan
    rule: Any = "auto"
    warmup_epochs: Any = "auto"
    examples_per_epoch: int | None = None
    adam_beta_1: str = "keep"
    critical_batch: float | None = None
    clipped_share: float | None = None

    def __post_init__(self) -> None:
        resolve_rule(self.rule, auto=SqrtRule())
        check_adam_beta_1(self.adam_beta_1)
        check_critical_batch(self.critical_batch)
        check_clipped_share(self.clipped_share)
        # At ratio 1 there is no warm-up: this only checks the argument.
        count_warmup_steps(self.warmup_epochs, rule=NoRule(), ratio=1, reference_batch=1)
        if self.examples_per_epoch is not None:
            self.plan.steps_per_epoch(self.examples_per_epoch)

    def warmup_steps(self, rule: ScalingRule) -> Fraction:
        """Returns the length of the warm-up under a rule, in steps of the reference run."""
        return count_warmup_steps(
            self.warmup_epochs,
            rule=rule,
            ratio=self.plan.batch_ratio,
            reference_batch=self.plan.reference_batch,
            examples_per_epoch=self.examples_per_epoch,
        )

    def rule_of_schedule(self) -> ScalingRule:
        """Returns the rule for a schedule of which the optimizer is not known.

        Raises:
            ScalingError: When the rule is "auto", which means by optimizer.
        """
        if isinstance(self.rule, str) and self.rule == "auto" and self.plan.batch_ratio != 1:
            raise ScalingError(
                "The rule of a schedule by itself must be given: 'auto' goes by the optimizer.\n"
                "Received: rule='auto'. Use `dp.optimizer` on the optimizer that has the schedule, or make "
                "DataParallel with rule='linear' (SGD) or rule='sqrt' (Adam and its kin)."
            )
        return resolve_rule(self.rule, auto=NoRule())


def recipe_beside(recipe: Recipe | None, **given: Any) -> Recipe:
    """Returns a recipe with what was given beside it.

    Args:
        recipe: None for one that says nothing.
        **given: Arguments of `DataParallel` that a recipe has too.

    Raises:
        ScalingError: When it is no `Recipe`, or something was given in both places.
    """
    if recipe is None:
        return Recipe(**given)
    if not isinstance(recipe, Recipe):
        raise ScalingError(
            "`recipe` must be a `tfscale.Recipe`.\n"
            f"Received: recipe={show(recipe)}. Give, for example, tfscale.Recipe(critical_batch=600)."
        )
    defaults = {each.name: each.default for each in fields(Recipe)}
    here = {name: value for name, value in given.items() if not _is_same(value, defaults[name])}
    for name, value in here.items():
        there = getattr(recipe, name)
        if not _is_same(there, defaults[name]):
            raise ScalingError(
                f"`{name}` must be given once, in the recipe or beside it.\n"
                f"Received: {name}={show(value)} and recipe=Recipe({name}={show(there)}). Leave one of them out."
            )
    return replace(recipe, **here)


def _is_same(value: Any, default: Any) -> bool:
    # A value may be anything, and compare as it likes.
    return value is default or (isinstance(value, str) and value == default)


def describe_growth(growth: BatchGrowth, knobs: Iterable[ScaledKnob]) -> str:
    """Returns what was derived, as text: the batches, one row per hyper-parameter, and why.

    Args:
        growth: The batches.
        knobs: What was re-derived so far.
    """
    plan, found = growth.plan, list(knobs)
    lines = [
        f"{plan.num_replicas} replica{'s' if plan.num_replicas > 1 else ''}, global batch {plan.global_batch}, "
        f"reference batch {plan.reference_batch}: batch_ratio {format_value(plan.batch_ratio)}."
    ]
    if plan.batch_ratio == 1:
        return "\n".join([*lines, "The batch is the one that the recipe was tuned for: nothing was changed."])
    lines += ["", format_table(("name", "unit", "old", "new", "rule"), [*_batch_rows(growth), *map(_row, found)])]
    lines += format_reasons(found)
    if not found:
        lines += ["", "No hyper-parameter was re-derived yet: pass the optimizer through `dp.optimizer`."]
    warnings = [f"Warning: {text}" for text in _cautions(growth, found)]
    return "\n".join([*lines, "", *warnings] if warnings else lines)


def _cautions(growth: BatchGrowth, knobs: list[ScaledKnob]) -> Iterator[str]:
    plan, rows = growth.plan, {knob.name: knob for knob in knobs}
    yield from caution_critical_batch(plan, growth.critical_batch, knobs)
    yield from caution_clipping(plan, growth.clipped_share)
    yield from caution_warmups(knobs)
    for name in rows:
        # Of an optimizer by itself; which rule the parts of another one have is not in their rows.
        class_name, _, knob = name.partition(".")
        if knob == "learning_rate" and plan.batch_ratio > 1:
            rule = _rule_of(class_name, growth)
            yield from caution_range(rule, plan.batch_ratio)
            steps = growth.warmup_steps(rule)
            if steps:
                length = plain(steps / plan.batch_ratio)
                yield from caution_warmup(f"{class_name}'s warm-up to the new rate", length, rows, f"{class_name}.")


def _rule_of(class_name: str, growth: BatchGrowth) -> ScalingRule:
    known = OPTIMIZERS.get(find_optimizer(class_name) or "")
    if known is None:
        return resolve_rule(growth.rule, auto=SqrtRule())
    return resolve_rule(growth.rule, auto=known.rule({name: default for name, (default, _) in known.knobs.items()}))


def _batch_rows(growth: BatchGrowth) -> Iterator[tuple[str, ...]]:
    plan = growth.plan
    yield ("global batch", "examples", format_value(plan.reference_batch), format_value(plan.global_batch), "x r")
    if growth.examples_per_epoch is not None:
        before = BatchPlan(global_batch=plan.reference_batch, num_replicas=1)
        steps = [format_value(each.steps_per_epoch(growth.examples_per_epoch)) for each in (before, plan)]
        yield ("epoch", "steps", *steps, "/ r, rounded up")


def _row(knob: ScaledKnob) -> tuple[str, ...]:
    return (knob.name, knob.unit, format_value(knob.old), format_value(knob.new), knob.rule)
