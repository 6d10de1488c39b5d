"""What does `tfscale plan` show: as a table, as JSON?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tfscale.scaling.derivation import TunedRun, Way
from tfscale.scaling.knob import format_reasons, format_table, format_value
from tfscale.scaling.ratio import plain

_IMPOSSIBLE = "impossible"


def describe_plan(run: TunedRun, kept: Way | None, grown: Way, cautions: dict[str, tuple[str, ...]]) -> str:
    """Returns the whole derivation as text: the batches, the knobs, the reasons, the warnings.

    Args:
        run: What was tuned.
        kept: With the batch kept; None when there are more replicas than examples in it.
        grown: With the batch grown.
        cautions: By title of the way, what to know before running it.
    """
    head = ("", "unit", "recipe", "keep the batch", "grow the batch", "rule")
    lines = [format_table(head, [*_batch_rows(run, kept, grown), *_knob_rows(kept, grown)])]
    if grown.batches.batch_ratio != 1:
        lines += format_reasons(grown.knobs)
    for title, texts in cautions.items():
        lines += ["", *(f"Warning, {title}: {text}" for text in texts)] if texts else []
    return "\n".join(lines)


def plan_to_json(run: TunedRun, kept: Way | None, grown: Way, cautions: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Returns the same as an object of JSON; the arguments are those of `describe_plan`."""
    return {
        "optimizer": run.optimizer,
        "rule": run.resolved_rule.name,
        "examples": grown.num_examples,
        "epochs": run.epochs,
        "reference_batch": grown.batches.reference_batch,
        "keep": None if kept is None else _way_to_json(run, kept, cautions),
        "grow": _way_to_json(run, grown, cautions),
    }


def _way_to_json(run: TunedRun, way: Way, cautions: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    batches = way.batches
    return {
        "num_replicas": batches.num_replicas,
        "global_batch": batches.global_batch,
        "per_replica_batch": _number(batches.per_replica_batch),
        "smallest_share": batches.global_batch // batches.num_replicas,
        "largest_share": -(-batches.global_batch // batches.num_replicas),
        "micro_batch": batches.micro_batch,
        "accumulation": batches.accumulation,
        "batch_ratio": _number(batches.batch_ratio),
        "steps_per_epoch": way.steps_per_epoch,
        "steps": None if run.epochs is None else _number(way.steps_per_epoch * run.epochs),
        "warmup_steps": _number(way.warmup_steps),
        "knobs": [dataclasses.asdict(knob) for knob in way.knobs],
        "warnings": list(cautions.get(way.title, ())),
    }


def _number(value: Any) -> Any:
    return plain(value) if hasattr(value, "denominator") else value


def _batch_rows(run: TunedRun, kept: Way | None, grown: Way) -> Iterator[tuple[str, ...]]:
    batch, examples = grown.batches.reference_batch, grown.num_examples
    ways = [kept, grown]

    def row(name: str, unit: str, old: Any, values: list[Any], rule: str = "") -> tuple[str, ...]:
        return (name, unit, format_value(old), *map(format_value, values), rule)

    def each(value: Any) -> list[Any]:
        return [_IMPOSSIBLE if way is None else value(way) for way in ways]

    steps = -(-examples // batch)
    yield row("replicas", "", 1, each(lambda way: way.batches.num_replicas))
    yield row("global batch", "examples", batch, each(lambda way: way.batches.global_batch))
    yield row("per-replica batch", "examples", batch, each(lambda way: way.batches.per_replica_batch))
    if any(way and way.batches.accumulation > 1 for way in ways):
        yield row("micro-batch", "examples", batch, each(lambda way: way.batches.micro_batch))
        yield row("micro-steps", "per step", 1, each(lambda way: way.batches.accumulation))
    yield row("batch ratio r", "", 1, each(lambda way: way.batches.batch_ratio))
    yield row("epoch", "steps", steps, each(lambda way: way.steps_per_epoch))
    if run.epochs is not None:
        epochs = run.epochs
        yield row("run", "steps", steps * epochs, each(lambda way: way.steps_per_epoch * epochs))
    if any(way and way.warmup_steps for way in ways):
        yield row("warm-up to the new rate", "steps", 0, each(lambda way: way.warmup_steps), "from the recipe's")


def _knob_rows(kept: Way | None, grown: Way) -> Iterator[tuple[str, ...]]:
    before = {} if kept is None else {knob.name: knob for knob in kept.knobs}
    for knob in grown.knobs:
        same = before.get(knob.name)
        new = _IMPOSSIBLE if same is None else format_value(same.new)
        yield knob.name, knob.unit, format_value(knob.old), new, format_value(knob.new), knob.rule
