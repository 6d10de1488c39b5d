"""What is known about the run that a script's hyper-parameters were tuned for, and what follows for another batch?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tfscale.errors import ScalingError
from tfscale.scaling.batch_plan import BatchPlan, check_count
from tfscale.scaling.knob import ScaledKnob, format_reasons, format_table, format_value
from tfscale.scaling.laws import ADAM_BETA_1, check_adam_beta_1
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
from tfscale.scaling.rules import RULE_NAMES, NoRule, ScalingRule, SqrtRule, resolve_rule
from tfscale.scaling.warmup import check_warmup_epochs, count_warmup_steps


@dataclass(frozen=True)
class Recipe:
    """What is known of the run that the hyper-parameters were tuned for, and how they follow a larger batch.

    `DataParallel` takes it, and `tfscale plan` has a flag for each argument.

    Args:
        reference_batch: The batch for which learning rate, schedule, betas ... were tuned. By default
            `per_replica_batch` (a recipe for one replica), or `global_batch` when that was given.
        rule: By what factor the learning rate grows: `"auto"` (by optimizer), `"linear"`, `"sqrt"`, `"none"`,
            `"adascale"` (measured at every step: `AdaScaleSGD`), a `ScalingRule`, a function of the batch ratio, or the
            factor itself.
        warmup_epochs: Epochs over which the rate rises from the reference rate; `"auto"` is 5 for the linear rule, and
            none for the others.
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
        >>> from tfscale import BatchPlan, LinearRule, Recipe
        >>> recipe = Recipe(reference_batch=64, rule="linear", warmup_epochs=5, examples_per_epoch=50_000)
        >>> plan = BatchPlan(global_batch=512, num_replicas=8, reference_batch=recipe.reference_batch)
        >>> recipe.warmup_steps(plan, LinearRule())
        Fraction(15625, 4)
    """

    reference_batch: int | None = field(
        default=None, metadata={"help": "The batch that the recipe was tuned for; by default the one that is given."}
    )
    rule: Any = field(
        default="auto",
        # `rule` alone would be anybody's flag.
        metadata={
            "flag": "scaling_rule",
            "choices": RULE_NAMES,
            "help": "By what factor the learning rate grows.",
        },
    )
    warmup_epochs: Any = field(
        default="auto", metadata={"help": "Epochs over which the rate rises from the reference rate, or 'auto'."}
    )
    examples_per_epoch: int | None = field(
        default=None, metadata={"help": "Examples in an epoch; needed for a warm-up."}
    )
    adam_beta_1: str = field(
        default="keep",
        metadata={
            "choices": tuple(ADAM_BETA_1),
            "help": "What becomes of beta_1 of Adam and its kin: kept, or beta_1^r.",
        },
    )
    critical_batch: float | None = field(
        default=None, metadata={"help": "The critical batch in examples, if it is known."}
    )
    clipped_share: float | None = field(
        default=None, metadata={"help": "The share of the steps in which clipping bites, from 0 to 1, if it is known."}
    )

    def __post_init__(self) -> None:
        for name in ("reference_batch", "examples_per_epoch"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        resolve_rule(self.rule, auto=SqrtRule())
        check_warmup_epochs(self.warmup_epochs)
        check_adam_beta_1(self.adam_beta_1)
        check_critical_batch(self.critical_batch)
        check_clipped_share(self.clipped_share)

    def warmup_steps(self, plan: BatchPlan, rule: ScalingRule) -> Fraction:
        """Returns the length of the warm-up under a rule, in steps of the reference run.

        Args:
            plan: How a step is divided, and by how much it grows.
            rule: The rule of the rate.

        Raises:
            ScalingError: When there is a warm-up, and `examples_per_epoch` is not known.
        """
        return count_warmup_steps(
            self.warmup_epochs,
            rule=rule,
            ratio=plan.batch_ratio,
            reference_batch=plan.reference_batch,
            examples_per_epoch=self.examples_per_epoch,
        )

    def rule_of_schedule(self, plan: BatchPlan) -> ScalingRule:
        """Returns the rule for a schedule of which the optimizer is not known.

        Raises:
            ScalingError: When the rule is "auto", which means by optimizer.
        """
        if isinstance(self.rule, str) and self.rule == "auto" and plan.batch_ratio != 1:
            raise ScalingError(
                "The rule of a schedule by itself must be given: 'auto' goes by the optimizer.\n"
                "Received: rule='auto'. Use `dp.optimizer` on the optimizer that has the schedule, or make "
                "DataParallel with recipe=tfscale.Recipe(rule='linear') (SGD), or rule='sqrt' (Adam and its kin)."
            )
        return resolve_rule(self.rule, auto=NoRule())


def choose_recipe(recipe: Any) -> Recipe:
    """Returns the recipe that was given; None for one that says nothing.

    Raises:
        ScalingError: When it is no `Recipe`.
    """
    if recipe is None:
        return Recipe()
    if not isinstance(recipe, Recipe):
        raise ScalingError(
            "`recipe` must be a `tfscale.Recipe`.\n"
            f"Received: recipe={show(recipe)}. Give, for example, tfscale.Recipe(reference_batch=64)."
        )
    return recipe


def describe_recipe(recipe: Recipe, plan: BatchPlan, knobs: Iterable[ScaledKnob]) -> str:
    """Returns what was derived, as text: the batches, one row per hyper-parameter, and why.

    Args:
        recipe: Of the reference run.
        plan: The batches of this one.
        knobs: What was re-derived so far.
    """
    found = list(knobs)
    lines = [
        f"{plan.num_replicas} replica{'s' if plan.num_replicas > 1 else ''}, global batch {plan.global_batch}, "
        f"reference batch {plan.reference_batch}: batch_ratio {format_value(plan.batch_ratio)}."
    ]
    if plan.batch_ratio == 1:
        return "\n".join([*lines, "The batch is the one that the recipe was tuned for: nothing was changed."])
    lines += ["", format_table(("name", "unit", "old", "new", "rule"), [*_batch_rows(recipe, plan), *map(_row, found)])]
    lines += format_reasons(found)
    if not found:
        lines += ["", "No hyper-parameter was re-derived yet: pass the optimizer through `dp.optimizer`."]
    warnings = [f"Warning: {text}" for text in _cautions(recipe, plan, found)]
    return "\n".join([*lines, "", *warnings] if warnings else lines)


def _cautions(recipe: Recipe, plan: BatchPlan, knobs: list[ScaledKnob]) -> Iterator[str]:
    rows = {knob.name: knob for knob in knobs}
    yield from caution_critical_batch(plan, recipe.critical_batch, knobs)
    yield from caution_clipping(plan, recipe.clipped_share)
    yield from caution_warmups(knobs)
    for name in rows:
        # Of an optimizer by itself; which rule the parts of another one have is not in their rows.
        class_name, _, knob = name.partition(".")
        if knob == "learning_rate" and plan.batch_ratio > 1:
            rule = _rule_of(class_name, recipe.rule)
            yield from caution_range(rule, plan.batch_ratio)
            steps = recipe.warmup_steps(plan, rule)
            if steps:
                length = plain(steps / plan.batch_ratio)
                yield from caution_warmup(f"{class_name}'s warm-up to the new rate", length, rows, f"{class_name}.")


def _rule_of(class_name: str, requested: Any) -> ScalingRule:
    known = OPTIMIZERS.get(find_optimizer(class_name) or "")
    if known is None:
        return resolve_rule(requested, auto=SqrtRule())
    return resolve_rule(requested, auto=known.rule({name: default for name, (default, _) in known.knobs.items()}))


def _batch_rows(recipe: Recipe, plan: BatchPlan) -> Iterator[tuple[str, ...]]:
    yield ("global batch", "examples", format_value(plan.reference_batch), format_value(plan.global_batch), "x r")
    if recipe.examples_per_epoch is not None:
        before = BatchPlan(global_batch=plan.reference_batch, num_replicas=1)
        steps = [format_value(each.steps_per_epoch(recipe.examples_per_epoch)) for each in (before, plan)]
        yield ("epoch", "steps", *steps, "/ r, rounded up")


def _row(knob: ScaledKnob) -> tuple[str, ...]:
    return (knob.name, knob.unit, format_value(knob.old), format_value(knob.new), knob.rule)
