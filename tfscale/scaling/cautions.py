"""Where does a derived plan stop being safe? Each answer in the user's terms, with its source."""

from __future__ import annotations

from collections.abc import Iterator

from tfscale.scaling.derivation import TunedRun, Way
from tfscale.scaling.knob import format_value
from tfscale.scaling.limits import (
    caution_clipping,
    caution_critical_batch,
    caution_range,
    caution_warmup,
    caution_warmups,
)
from tfscale.scaling.rules import AdaScaleRule, NoRule

MIN_BATCH_NORM_BATCH = 16
MAX_SHARE_OF_DATA = 10  # one part in
MAX_DRIFT = 0.02

_BATCH_NORM_ERRORS = (
    "ResNet-50 on ImageNet errs on 23.6 % with 32 examples, on 24.8 / 27.3 / 34.7 % with 8 / 4 / 2 "
    "(Wu & He 2018, arXiv:1803.08494)"
)


def find_cautions(run: TunedRun, way: Way) -> tuple[str, ...]:
    """Returns what the user should know before running a plan, one sentence or two each.

    Args:
        run: What was tuned.
        way: What became of it.
    """
    found = (_batch_norm, _share_of_data, _rule, _limits, _warmup, _drift)
    return tuple(text for find in found for text in find(run, way))


def _limits(run: TunedRun, way: Way) -> Iterator[str]:
    rows = {knob.name: knob for knob in way.knobs}
    yield from caution_critical_batch(way.batches, run.recipe.critical_batch, way.knobs)
    yield from caution_clipping(way.batches, run.recipe.clipped_share)
    yield from caution_warmups(way.knobs)
    if way.warmup_steps and way.batches.batch_ratio > 1:
        yield from caution_warmup("The warm-up to the new rate", way.warmup_steps, rows)


def _batch_norm(run: TunedRun, way: Way) -> Iterator[str]:
    share, reference = way.batches.global_batch // way.batches.num_replicas, way.batches.reference_batch
    if way.batches.accumulation > 1:
        share = min(share, way.batches.micro_batch)
    if not run.has_batch_norm or share >= MIN_BATCH_NORM_BATCH:
        return
    # What batch_norm="auto" does: local statistics only where they see as many examples as in the reference run.
    synchronised = way.batches.per_replica_batch < reference
    text = f"{share} examples per replica are few for BatchNormalization: {_BATCH_NORM_ERRORS}."
    if synchronised:
        yield f"{text} batch_norm='auto' therefore takes its statistics over all replicas; keep it so."
    else:
        yield f"{text} Use {MIN_BATCH_NORM_BATCH} or more, batch_norm='synchronized', or another normalisation."


def _share_of_data(run: TunedRun, way: Way) -> Iterator[str]:
    batch = way.batches.global_batch
    if batch * MAX_SHARE_OF_DATA > way.num_examples:
        share = 100 * batch / way.num_examples
        yield (
            f"A global batch of {batch} is {share:.3g} % of the {way.num_examples} examples: an epoch has only "
            f"{way.steps_per_epoch} steps, too few for any rule to make as much progress. Use fewer replicas, or keep "
            "the batch."
        )


def _rule(run: TunedRun, way: Way) -> Iterator[str]:
    ratio, rule = way.batches.batch_ratio, run.resolved_rule
    if ratio <= 1:
        return
    yield from caution_range(rule, ratio)
    if run.laws.by_analogy:
        yield (
            f"No paper gives a rule for {run.optimizer} on larger batches; this one is derived like the others. "
            "Try it on a short run first."
        )
    elif rule == AdaScaleRule():
        yield (
            f"With rule 'adascale' a step is worth 1 to {format_value(ratio)} steps of the recipe, as measured: the "
            "schedule ends later than in the recipe's epochs. Train until `optimizer.position` reaches its length."
        )
    elif rule == NoRule():
        yield "Rule 'none' leaves the rate alone: on a larger batch the run makes less progress per epoch."


def _warmup(run: TunedRun, way: Way) -> Iterator[str]:
    if run.epochs is None or way.warmup_steps == 0:
        return
    length = way.batches.steps_to_epochs(way.warmup_steps, way.num_examples)
    if length > run.epochs:
        yield (
            f"The warm-up of {format_value(length)} epochs is longer than the run of {format_value(run.epochs)}: "
            "the rate never gets where it should, and the training refuses it. Set --warmup-epochs, or run longer."
        )


def _drift(run: TunedRun, way: Way) -> Iterator[str]:
    ratio, real = way.batches.batch_ratio, way.batches.reference_steps_per_step(way.num_examples)
    if abs(real / ratio - 1) > MAX_DRIFT:
        yield (
            f"The last batch of an epoch is smaller than the others: counted in epochs, one step stands for "
            f"{format_value(real)} reference steps and not for {format_value(ratio)}, so schedules end "
            f"{100 * abs(1 - float(real / ratio)):.2g} % {'early' if real < ratio else 'late'}. Drop the remainder, or "
            "choose a batch that divides the examples."
        )
