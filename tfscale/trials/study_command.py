"""`tfscale study`: the command line's way to the critical batch."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path

from tfscale.parity.target import find_target
from tfscale.study import TrialResult, fit
from tfscale.study.goal import parse_goal
from tfscale.study.schedule import Settings, parse_batches
from tfscale.trials.measuring import import_like_python
from tfscale.trials.study_report import write_report
from tfscale.trials.studying import Experiment, count_examples, find_parameters, run_study


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand.

    Args:
        args: As `tfscale study --help` has them.

    Returns:
        The exit status: 0 when the batches that were tried contain the critical one, 1 when they do not.
    """
    import_like_python([os.getcwd()])
    build, data = find_target(args.build, "build"), find_target(args.data, "data")
    goal, batches = parse_goal(args.target), parse_batches(args.batches)
    examples = count_examples(data)
    parameters = find_parameters(build, tuple(args.search.split(",")))
    reference = args.reference_batch or batches[len(batches) // 2]
    settings = Settings(batches, args.trials, args.seeds, parameters, reference, args.rule, examples)
    experiment = Experiment(build, data, goal, args.budget_epochs * examples, args.micro_batch)
    directory, progress = Path(args.directory), _Progress()
    most_s = math.inf if args.budget_hours is None else 3600 * args.budget_hours
    results = run_study(
        experiment, settings, directory, at_a_time=args.at_a_time, most_s=most_s, on_result=progress.show
    )
    study = fit(results)
    if not args.no_report:
        title = f"{build}: {goal}"
        not_tried = (
            f"other schedules than that of `build`, other rates than around its {parameters[0].centre:g}, other goals"
        )
        write_report(directory, study, results, title=title, not_tried=f"{not_tried}.")
    print(study)
    print(f"{len(results)} trials in {directory / 'study.csv'}" + ("" if args.no_report else ", study.png, study.html"))
    return 0 if study.is_bracketed else 1


class _Progress:
    """Tells of each trial, and how long those that are left of the round will take at this pace."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()
        self._ended = 0

    def show(self, result: TrialResult, left: int) -> None:
        """One line."""
        self._ended += 1
        trial = result.trial
        left_s = (time.monotonic() - self._begun_s) / self._ended * left
        steps = "" if math.isinf(result.steps) else f" in {result.steps:.1f} steps"
        print(
            f"batch {trial.batch}, point {trial.point}, seed {trial.seed}: {result.reason}{steps}; "
            f"{left} left of this round, about {left_s:.0f} s",
            file=sys.stderr,
            flush=True,
        )
