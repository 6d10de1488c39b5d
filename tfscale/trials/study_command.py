"""`tfscale study`: the command line's way to the critical batch."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

from tfscale.console.drawing import check_drawing
from tfscale.console.screen import Progress
from tfscale.errors import StudyError
from tfscale.parity.target import find_target
from tfscale.study import Study, Trial, TrialResult, fit
from tfscale.study.goal import parse_goal
from tfscale.study.schedule import Settings, parse_batches
from tfscale.trials.continuing import known_reference_batch
from tfscale.trials.experiment import Experiment
from tfscale.trials.measuring import import_like_python
from tfscale.trials.study_report import study_to_json, tell_left, write_report
from tfscale.trials.studying import count_examples, find_parameters, run_study


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand.

    Args:
        args: As `tfscale study --help` has them.

    Returns:
        The exit status: 0 when the study is bracketed (`Study.is_bracketed`), 1 when it is not.
    """
    if not args.no_report:
        check_drawing("study", "study", "--no-report: study.csv is there")
    import_like_python([os.getcwd()])
    build, data = find_target(args.build, "build"), find_target(args.data, "data")
    goal, batches = parse_goal(args.target), parse_batches(args.batches)
    examples = count_examples(data)
    parameters = find_parameters(build, tuple(args.search.split(",")))
    directory = Path(args.directory)
    reference = args.reference_batch or known_reference_batch(directory) or batches[len(batches) // 2]
    settings = Settings(batches, args.trials, args.seeds, parameters, reference, args.rule, examples)
    experiment = Experiment(build, data, goal, args.budget_epochs * examples, args.micro_batch)
    most_s = math.inf if args.budget_hours is None else 3600 * args.budget_hours
    with Progress(of=" of this round") as progress:

        def show(result: TrialResult, left: int) -> None:
            progress.end(_told(result), left)

        results, left = run_study(
            experiment,
            settings,
            directory,
            at_a_time=args.at_a_time,
            most_s=most_s,
            engine=args.engine,
            silent_s=args.silent_s,
            on_result=show,
        )
    study = _fit(results, left)
    if not args.no_report:
        title = f"{build}: {goal}"
        not_tried = (
            f"other schedules than that of `build`, other rates than around its {parameters[0].centre:g}, other goals"
        )
        write_report(directory, study, results, left, title=title, not_tried=f"{not_tried}.")
    if args.json:
        print(json.dumps(study_to_json(study, results, left, str(directory)), indent=1))
    else:
        print(study)
        print(
            f"{len(results)} trials in {directory / 'study.csv'}"
            + ("" if args.no_report else ", study.png, study.html")
        )
        if left:
            print(tell_left(left))
    return 0 if study.is_bracketed else 1


def _fit(results: Sequence[TrialResult], left: Sequence[Trial]) -> Study:
    try:
        return fit(results)
    except StudyError as error:
        if not left:
            raise
        raise StudyError(f"{error} {tell_left(left)}") from error


def _told(result: TrialResult) -> str:
    trial = result.trial
    steps = "" if math.isinf(result.steps) else f" in {result.steps:.1f} steps"
    return f"batch {trial.batch}, point {trial.point}, seed {trial.seed}: {result.reason}{steps}"
