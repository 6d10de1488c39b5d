"""What is known about the run that a script's hyper-parameters were tuned for, and what follows for another batch?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tfscale.errors import ScalingError
from tfscale.scaling.batch_plan import BatchPlan
from tfscale.scaling.knob import ScaledKnob, format_reasons, format_table, format_value
from tfscale.scaling.rules import NoRule, ScalingRule, SqrtRule, resolve_rule
from tfscale.scaling.warmup import count_warmup_steps


@dataclass(frozen=True)
class BatchGrowth:
    """The batches of a script's run, and how its hyper-parameters are to follow from those of the reference run.

    Args:
        plan: The batches.
        rule: As `scale_hyperparameters`.
        warmup_epochs: As `count_warmup_steps`.
        examples_per_epoch: Examples in an epoch, needed for a warm-up only.

    Raises:
        ScalingError: When the rule or the warm-up is none.
        BatchError: When `examples_per_epoch` is no positive integer.
    """

    plan: BatchPlan
    rule: Any = "auto"
    warmup_epochs: Any = "auto"
    examples_per_epoch: int | None = None

    def __post_init__(self) -> None:
        resolve_rule(self.rule, auto=SqrtRule())
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
    return "\n".join(lines)


def _batch_rows(growth: BatchGrowth) -> Iterator[tuple[str, ...]]:
    plan = growth.plan
    yield ("global batch", "examples", format_value(plan.reference_batch), format_value(plan.global_batch), "x r")
    if growth.examples_per_epoch is not None:
        before = BatchPlan(global_batch=plan.reference_batch, num_replicas=1)
        steps = [format_value(each.steps_per_epoch(growth.examples_per_epoch)) for each in (before, plan)]
        yield ("epoch", "steps", *steps, "/ r, rounded up")


def _row(knob: ScaledKnob) -> tuple[str, ...]:
    return (knob.name, knob.unit, format_value(knob.old), format_value(knob.new), knob.rule)
