"""`tfscale sweep`: the command line's way to the best settings."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfscale.console.drawing import check_drawing, new_figure
from tfscale.console.screen import Progress
from tfscale.errors import StudyError
from tfscale.parity.target import find_target
from tfscale.scaling.cautions import find_cautions
from tfscale.scaling.derivation import TunedRun, Way, derive_ways
from tfscale.scaling.optimizer_table import OPTIMIZERS
from tfscale.scaling.plan_report import describe_plan, plan_to_json
from tfscale.scaling.recipe import Recipe
from tfscale.sweeps.outcome import ENDED, STATES, Outcome, best_of, outcome_path
from tfscale.sweeps.running import Plan, run_sweep
from tfscale.sweeps.space import read_space

# What a space may call the knobs that are re-derived.
_KNOBS = {"rate": "learning_rate", "lr": "learning_rate", "learning_rate": "learning_rate"}
_KNOBS |= {name: name for name in ("momentum", "beta_1", "beta_2", "rho", "epsilon", "weight_decay")}
_BATCHES = ("batch", "global_batch", "batch_size")

_Carried = tuple[TunedRun, Way | None, Way, dict[str, tuple[str, ...]]]


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand.

    Args:
        args: As `tfscale sweep --help` has them.

    Returns:
        The exit status: 0 when a trial has a result, 1 when none has.
    """
    if not args.no_picture:
        check_drawing("sweep", "sweep", "--no-picture: sweep.csv is there")
    plan = Plan(
        find_target(args.objective, "objective"),
        read_space(args.space),
        args.trials,
        sampler=args.sampler,
        direction=args.direction,
        prunes=args.prune,
        seed=args.seed,
        at_a_time=args.at_a_time,
        timeout_s=args.timeout_s,
        is_shared=args.shared,
        silent_s=args.silent_s,
    )
    if args.carry_to is not None:
        # Before hours of trials, not after them.
        _check_carrying(args, plan)
    directory = Path(args.directory)
    outcomes = _run_and_tell(plan, directory, shows_output=args.show_output)
    if not args.no_picture:
        (directory / "sweep.png").write_bytes(draw_picture(outcomes, args.direction))
    best = best_of(outcomes, args.direction)
    if args.json:
        print(json.dumps(_facts(outcomes, best, args), indent=1))
    elif best is None:
        print(f"No trial has a result; {directory / 'sweep.csv'} has the errors.")
    else:
        settings = ", ".join(f"{name}={value!r}" for name, value in best.parameters.items())
        print(f"best: {best.value:g} of trial {best.number}: {settings}")
        print(f"{len(outcomes)} trials in {directory / 'sweep.csv'}" + ("" if args.no_picture else ", sweep.png"))
        if args.carry_to is not None:
            print(f"\n{carry(best, args)}")
    return 1 if best is None else 0


class _Told(NamedTuple):
    """Lines of the trials, above the bar where there is one."""

    progress: Progress
    width: int

    def write_lines(self, rank: int, lines: list[bytes]) -> None:
        for line in lines:
            self.progress.tell(f"[{rank:>{self.width}}] {line.decode(errors='replace')}")


def _run_and_tell(plan: Plan, directory: Path, *, shows_output: bool) -> list[Outcome]:
    """Runs a sweep; says what comes of each trial, and how long the rest takes at this pace."""
    there = {path.stem for path in (directory / "trials").glob("*.json")}
    outcomes: list[Outcome] = []
    with Progress() as progress, contextlib.ExitStack() as stack:
        screen = _Told(progress, len(str(plan.trials - 1))) if shows_output else None
        for outcome in stack.enter_context(contextlib.closing(run_sweep(plan, directory, screen))):
            outcomes.append(outcome)
            left = plan.trials - len(outcomes)
            value = "" if outcome.value is None else f" {outcome.value:g}"
            told = f"trial {outcome.number}: {outcome.state}{value} {outcome.reason}".rstrip()
            if outcome_path(directory, outcome.number).stem in there:
                # It took no time now.
                progress.tell(f"{told}; {left} left")
            else:
                progress.end(told, left)
    return outcomes


def _facts(outcomes: Sequence[Outcome], best: Outcome | None, args: argparse.Namespace) -> dict[str, Any]:
    """What the text says, for JSON."""
    directory = Path(args.directory)
    carries = args.carry_to is not None and best is not None
    return {
        "best": None if best is None else dataclasses.asdict(best),
        "trials": len(outcomes),
        "states": {state: sum(each.state == state for each in outcomes) for state in STATES},
        "csv": str(directory / "sweep.csv"),
        "picture": None if args.no_picture else str(directory / "sweep.png"),
        "carried": plan_to_json(*_carried(best, args)) if carries and best is not None else None,
        "as_they_are": _left_out(best) if carries and best is not None else [],
    }


def _check_carrying(args: argparse.Namespace, plan: Plan) -> None:
    missing = [] if args.examples is not None else ["--examples"]
    if args.batch is None and not set(_BATCHES) & set(plan.space):
        missing.append("--batch")
    if args.optimizer.lower() not in {name.lower() for name in OPTIMIZERS}:
        raise StudyError(
            f"`--optimizer` must be one of keras.optimizers.\nReceived: {args.optimizer[:100]!r}; there are "
            f"{', '.join(sorted(OPTIMIZERS))}."
        )
    if missing:
        raise StudyError(
            "A recipe is carried from its batch, with the examples of an epoch.\n"
            f"Received: --carry-to {args.carry_to} without {' and '.join(missing)}."
        )


def carry(best: Outcome, args: argparse.Namespace) -> str:
    """Returns the recipe of a row, re-derived for more replicas.

    Args:
        best: The row.
        args: With `carry_to`, `batch`, `examples` and `optimizer`.
    """
    text = describe_plan(*_carried(best, args))
    left_out = _left_out(best)
    return text + (f"\nAs they are: {', '.join(left_out)}." if left_out else "")


def _carried(best: Outcome, args: argparse.Namespace) -> _Carried:
    named = {_KNOBS[name]: float(value) for name, value in best.parameters.items() if name in _KNOBS}
    batch = args.batch or next(int(best.parameters[name]) for name in _BATCHES if name in best.parameters)
    optimizer = next(name for name in OPTIMIZERS if name.lower() == args.optimizer.lower())
    tuned = TunedRun(optimizer, named, Recipe(examples_per_epoch=args.examples, reference_batch=batch))
    kept, grown = derive_ways(tuned, num_replicas=args.carry_to, per_replica_batch=batch)
    return tuned, kept, grown, {way.title: find_cautions(tuned, way) for way in (kept, grown) if way is not None}


def _left_out(best: Outcome) -> list[str]:
    """What has no rule, and stays as it is."""
    return sorted(set(best.parameters) - set(_KNOBS) - set(_BATCHES))


def draw_picture(outcomes: Sequence[Outcome], direction: str) -> bytes:
    """Returns a PNG: the values in the order of the trials, and against each number that was varied."""
    ended = sorted((each for each in outcomes if each.state == ENDED), key=lambda each: each.number)
    names = sorted({name for each in ended for name in each.parameters})[:7]
    figure = new_figure((4 * (1 + len(names)), 4))
    first, *others = figure.subplots(1, 1 + len(names), squeeze=False)[0]
    values = [each.value or 0.0 for each in ended]
    first.scatter([each.number for each in ended], values, s=14, color="0.6")
    choose = min if direction == "min" else max
    first.step([each.number for each in ended], [choose(values[: n + 1]) for n in range(len(values))], where="post")
    first.set(xlabel="trial", ylabel="value", title=f"{len(ended)} of {len(outcomes)} ended")
    for axes, name in zip(others, names, strict=True):
        own = [each.parameters.get(name) for each in ended]
        numbers = [each for each in own if isinstance(each, int | float) and not isinstance(each, bool)]
        axes.scatter(own if len(numbers) == len(own) else list(map(str, own)), values, s=14)
        is_wide = len(numbers) == len(own) and min(numbers, default=0) > 0 and max(numbers) > 20 * min(numbers)
        axes.set(xlabel=name, xscale="log" if is_wide and math.isfinite(max(numbers)) else axes.get_xscale())
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=100)
    return content.getvalue()
