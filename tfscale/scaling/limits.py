"""From where on does a larger batch pay less than its size, and what no longer holds there?

Each answer is one sentence or two for the user, or none. `cautions.py` has those that need a whole plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from tfscale.errors import ScalingError
from tfscale.scaling.batch_plan import BatchPlan
from tfscale.scaling.knob import ScaledKnob, format_value
from tfscale.scaling.laws import ADAM_BETA_1
from tfscale.scaling.ratio import exact_fraction, is_number, show
from tfscale.scaling.rules import ScalingRule

MAX_CLIPPED_SHARE = 0.2
MIN_WARMUP_STEPS = 20
# Of the critical batch: up to there a larger batch costs up to half as many examples again.
CAREFUL_FROM = Fraction(1, 2)


def check_critical_batch(value: Any) -> Fraction | None:
    """Returns an argument `critical_batch`, exactly; None when it is not known.

    Raises:
        ScalingError: When it is no positive number of examples.
    """
    if value is None:
        return None
    if not is_number(value) or value <= 0:
        raise ScalingError(
            "`critical_batch` must be a positive number of examples: the batch at which a run needs twice the examples "
            "of one with the smallest batch.\n"
            f"Received: critical_batch={show(value)}. Leave it out where it is not known."
        )
    return exact_fraction(value)


def check_clipped_share(value: Any) -> float | None:
    """Returns an argument `clipped_share`; None when it is not known.

    Raises:
        ScalingError: When it is no number from 0 to 1.
    """
    if value is None:
        return None
    if not is_number(value) or not 0 <= value <= 1:
        raise ScalingError(
            "`clipped_share` must be a number from 0 to 1: the share of the steps in which clipping bites.\n"
            f"Received: clipped_share={show(value)}. Leave it out where it is not known; 25 % is 0.25."
        )
    return float(value)


def _about(value: Fraction) -> str:
    """Three digits of a number, which may be beyond what a float holds."""
    try:
        return f"{float(value):.3g}"
    except OverflowError:
        return "more than 1e308"


def caution_critical_batch(batches: BatchPlan, critical_batch: Any, knobs: Iterable[ScaledKnob]) -> Iterator[str]:
    """Yields a sentence from half the critical batch on, with the examples that the growth costs.

    Steps to a loss fall as `S(B) = S_min (1 + B_crit / B)`, so examples grow as `E(B) = E_min (1 + B / B_crit)`.

    Args:
        batches: The batch, and that of the recipe.
        critical_batch: B_crit in examples; None when it is not known.
        knobs: What was re-derived.
    """
    critical, batch, before = check_critical_batch(critical_batch), batches.global_batch, batches.reference_batch
    if critical is None or batch <= before or batch < CAREFUL_FROM * critical:
        return
    examples = (1 + batch / critical) / (1 + before / critical)
    yield (
        f"A global batch of {batch} is {_about(batch / critical)} of the critical batch of {format_value(critical)}:"
        f" to the same loss it takes about {_about(examples)} times the examples of a batch of {before}, and "
        f"{_about(examples / batches.batch_ratio)} of its steps, not {_about(1 / batches.batch_ratio)}. Train "
        "for as many more epochs, or use a smaller batch."
    )
    memory = ADAM_BETA_1["memory"]
    changed = [knob.name for knob in knobs if (knob.rule, knob.reason) == (memory.formula, memory.reason)]
    if changed:
        yield (
            f"From half the critical batch on, beta_1^r forgets too fast, and costs up to 3 times the steps: "
            f"{', '.join(changed)}. Leave out adam_beta_1='memory'."
        )


def caution_range(rule: ScalingRule, ratio: Fraction) -> Iterator[str]:
    """Yields a sentence beyond the largest ratio at which a rule was seen to hold.

    Args:
        rule: Of the rate.
        ratio: The batch ratio.
    """
    if rule.shown_up_to is not None and ratio > rule.shown_up_to:
        yield (
            f"batch_ratio {format_value(ratio)} is above {rule.shown_up_to:g}, the largest that rule {rule.name!r} "
            f"({rule.source}) was seen to hold for here: {rule.shown_by}. Expect a lower final accuracy, or use fewer "
            "replicas."
        )


def caution_clipping(batches: BatchPlan, clipped_share: Any) -> Iterator[str]:
    """Yields a sentence where clipping bites in more than 20 % of the steps of a recipe whose batch grows.

    Args:
        batches: The batch, and that of the recipe.
        clipped_share: From 0 to 1; None when it is not known.
    """
    share = check_clipped_share(clipped_share)
    if share is not None and share > MAX_CLIPPED_SHARE and batches.batch_ratio > 1:
        yield (
            f"Clipping bites in {100 * share:.3g} % of the steps, more than {100 * MAX_CLIPPED_SHARE:.0f} %: where it "
            "does, a step is as long whatever the batch, and goes sqrt(r) farther for r times the examples unasked, "
            "which no rule takes into account. For SGD use rule='sqrt' in place of 'linear', or clip less."
        )


def caution_warmups(knobs: Iterable[ScaledKnob]) -> Iterator[str]:
    """Yields a sentence for each warm-up of the recipe's own that became too short.

    Args:
        knobs: What was re-derived, with names as `scale_hyperparameters` gives them, after any prefix.
    """
    rows = {knob.name: knob for knob in knobs}
    for name, knob in rows.items():
        if name.endswith("warmup_steps") and is_number(knob.old) and is_number(knob.new) and knob.new < knob.old:
            # Of a schedule in an optimizer's rate, of an optimizer, or of the one schedule of a plan.
            path = name.removesuffix("warmup_steps").partition("learning_rate")[0].removesuffix("schedule.")
            yield from caution_warmup(f"The recipe's warm-up ({name})", knob.new, rows, path)


def caution_warmup(subject: str, steps: Any, rows: Mapping[str, ScaledKnob], path: str = "") -> Iterator[str]:
    """Yields a sentence when a warm-up has become shorter than 20 steps or 2 / (1 - beta_2).

    Args:
        subject: What the sentence is about.
        steps: Its length on the larger batch.
        rows: What was re-derived, by name.
        path: What is before the names of the knobs of its optimizer.
    """
    least, why = float(MIN_WARMUP_STEPS), f"{MIN_WARMUP_STEPS}, too few for the rate to rise gently"
    beta_2 = _beta_2(rows, path)
    if beta_2 is not None and 2 / (1 - beta_2) > least:
        least = 2 / (1 - beta_2)
        why = f"2 / (1 - beta_2) = {least:.4g}, which the average of squares takes to settle"
    if steps < least:
        yield f"{subject} shrinks to {format_value(steps)} steps, below {why}. Make it longer, or use a smaller batch."


def _beta_2(rows: Mapping[str, ScaledKnob], path: str) -> float | None:
    """The decay of the average of squares; that of Lion, which has no epsilon, is of something else."""
    for name in ("beta_2", "adam_beta_2"):
        knob = rows.get(f"{path}{name}")
        if knob is not None and f"{path}epsilon" in rows and is_number(knob.new) and knob.new < 1:
            return float(knob.new)
    return None
