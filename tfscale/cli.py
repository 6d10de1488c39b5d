"""The command `tfscale`.

Exit status: 0 when all is well, 1 when a check found a difference, 2 when it could not run; `launch` returns that of
the worker that failed. `tfscale.console.commands` has the whole table.
"""

import argparse
import importlib.metadata
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfscale.adopting import flags as init_flags
from tfscale.console.arguments import Parser, as_object, parse_count, parse_counts, parse_target
from tfscale.console.commands import COMMANDS, overview
from tfscale.doctor import flags as doctor_flags
from tfscale.errors import TfscaleError
from tfscale.launch import flags as launch_flags
from tfscale.plan import flags as foretelling_flags
from tfscale.reporting import flags as report_flags
from tfscale.scaling import plan_command
from tfscale.study import flags as study_flags
from tfscale.sweeps import flags as sweep_flags

if TYPE_CHECKING:
    from tfscale.plan.critical_batch import CriticalBatch
    from tfscale.plan.source import Trace


# What the parser of a command leaves beside its flags.
_NO_FLAGS = ("run", "refuse", "parse", "of_command")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: The arguments after the program's name; those of this process by default.

    Returns:
        The exit status.

    Example:
        >>> from tfscale.cli import main
        >>> main(["--version"])
        Traceback (most recent call last):
        SystemExit: 0
    """
    parser = make_parser()
    _complete(parser)
    args = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        status = run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Who reads has enough, as `head` has. What is left is not to be written at the process's end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except TfscaleError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        if getattr(args, "json", False):
            print(as_object(type(error).__name__, str(error)))
        return 2


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answers a shell that asks what may come next, and ends: `eval "$(register-python-argcomplete tfscale)"`."""
    if "_ARGCOMPLETE" in os.environ and importlib.util.find_spec("argcomplete"):
        import argcomplete

        argcomplete.autocomplete(parser)


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser; every subcommand sets `run`, a function of the parsed arguments."""
    parser: argparse.ArgumentParser = Parser(prog="tfscale", description="Train one Keras model on N replicas.")
    parser.add_argument("--version", action="version", version=f"tfscale {importlib.metadata.version('tfscale')}")
    parser.set_defaults(run=_run_alone)
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_init(subcommands)
    _add_verify(subcommands)
    _add_launch(subcommands)
    _add_report(subcommands)
    _add_plan(subcommands)
    _add_measure(subcommands)
    _add_study(subcommands)
    _add_sweep(subcommands)
    _add_doctor(subcommands)
    for each in subcommands.choices.values():
        each.set_defaults(of_command=each)
    return parser


def _run_alone(args: argparse.Namespace) -> int:
    del args
    print(overview(importlib.metadata.version("tfscale")))
    return 0


def _add_init(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    init = subcommands.add_parser("init", help=COMMANDS["init"].purpose, description=init_flags.DESCRIPTION)
    init_flags.add_flags(init)
    init.set_defaults(run=_run_init)


def _run_init(args: argparse.Namespace) -> int:
    # Of interest to no other command.
    from tfscale.adopting.command import run

    return run(args)


def _add_report(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    report = subcommands.add_parser("report", help=COMMANDS["report"].purpose, description=report_flags.DESCRIPTION)
    report_flags.add_flags(report)
    report.set_defaults(run=_run_report)


def _run_report(args: argparse.Namespace) -> int:
    # Of interest to no other command.
    from tfscale.reporting.command import run

    return run(args)


def _add_verify(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verify = subcommands.add_parser(
        "verify",
        help=COMMANDS["verify"].purpose,
        description=(
            "Train your model on each number of replicas, each in a process of its own on logical "
            "CPUs, and print how far weights, optimizer state, metrics and predictions are apart. With --bitwise: "
            "whether a run of logical replicas is the same on any number of devices, to the bit."
        ),
    )
    verify.add_argument(
        "build",
        type=parse_target,
        metavar="BUILD",
        help="the function that returns the compiled model, as module:name or file.py:name",
    )
    verify.add_argument(
        "data",
        type=parse_target,
        metavar="DATA",
        help="the function that returns the training data, likewise",
    )
    verify.add_argument(
        "--replicas",
        type=parse_counts,
        metavar="N,N,...",
        help="the numbers of replicas to compare (default: 1,2,3; to the bit as many as logical replicas, too)",
    )
    verify.add_argument(
        "--workers",
        type=parse_count,
        metavar="N",
        help="compare a run on this many worker processes too",
    )
    verify.add_argument("--epochs", type=parse_count, default=1, metavar="N", help="epochs to train (default: 1)")
    verify.add_argument(
        "--global-batch",
        type=parse_count,
        metavar="EXAMPLES",
        help="examples per step, over all replicas (default: the data set's own batch)",
    )
    verify.add_argument(
        "--against",
        choices=("keras",),
        help="run plain Keras beside, to see what would have happened without tfscale",
    )
    verify.add_argument(
        "--bitwise",
        action="store_true",
        help="compare the bits of runs of logical replicas on different devices, random layers and all, with "
        "deterministic=True: tfscale verify train.py:build train.py:data --bitwise --logical-replicas 8",
    )
    verify.add_argument(
        "--logical-replicas",
        type=parse_count,
        metavar="L",
        help="of every run of --bitwise (default: 4); they must divide the global batch",
    )
    verify.add_argument("--json", action="store_true", help="print JSON")
    verify.set_defaults(run=_run_verify)


def _run_verify(args: argparse.Namespace) -> int:
    # TensorFlow is behind this import, and `tfscale --help` must not pay for it.
    from tfscale.parity.command import run

    return run(args)


def _add_measure(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    measure = subcommands.add_parser(
        "measure",
        help=COMMANDS["measure"].purpose,
        description=(
            "Train your model for some steps on the devices that are here, and tell its noise scale: the batch at "
            "which noise and gradient are equally long. It is an order of magnitude for the batch up to which twice "
            "the examples a step take about half the steps."
        ),
    )
    measure.add_argument(
        "build", type=parse_target, metavar="BUILD", help="the function that returns the compiled model"
    )
    measure.add_argument("data", type=parse_target, metavar="DATA", help="the function that returns the training data")
    measure.add_argument("--steps", type=parse_count, default=300, metavar="N", help="steps to train (default: 300)")
    measure.add_argument(
        "--global-batch", type=parse_count, metavar="EXAMPLES", help="examples per step (default: the data's own)"
    )
    measure.add_argument("--per-layer", action="store_true", help="tell the noise scale of each layer, too")
    measure.add_argument(
        "--output", default="noise.csv", metavar="FILE", help="where each step goes (default: noise.csv)"
    )
    measure.add_argument("--json", action="store_true", help="print JSON")
    measure.set_defaults(run=_run_measure)


def _run_measure(args: argparse.Namespace) -> int:
    _check_files(build=args.build, data=args.data)
    # TensorFlow is behind this import.
    from tfscale.trials.measure_command import run

    return run(args)


def _add_study(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    study = subcommands.add_parser(
        "study",
        help=COMMANDS["study"].purpose,
        description=study_flags.DESCRIPTION,
        epilog=study_flags.EPILOG,
    )
    study.add_argument("build", type=parse_target, metavar="BUILD", help="the function that returns the compiled model")
    study.add_argument("data", type=parse_target, metavar="DATA", help="the function that returns the training data")
    study_flags.add_flags(study)
    study.set_defaults(run=_run_study)


def _run_study(args: argparse.Namespace) -> int:
    from tfscale.study.goal import parse_goal
    from tfscale.study.schedule import parse_batches

    _check_files(build=args.build, data=args.data)
    parse_goal(args.target)
    parse_batches(args.batches)
    # TensorFlow is behind this import: what can be refused without it is.
    from tfscale.trials.study_command import run

    return run(args)


def _add_sweep(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sweep = subcommands.add_parser(
        "sweep",
        help=COMMANDS["sweep"].purpose,
        description=sweep_flags.DESCRIPTION,
    )
    sweep.add_argument(
        "objective",
        type=parse_target,
        metavar="OBJECTIVE",
        help="the function that returns a number",
    )
    sweep_flags.add_flags(sweep)
    sweep.set_defaults(run=_run_sweep)


def _run_sweep(args: argparse.Namespace) -> int:
    _check_files(objective=args.objective)
    # TensorFlow is behind this import.
    from tfscale.sweeps.command import run

    return run(args)


def _add_plan(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    plan = subcommands.add_parser(
        "plan",
        help=COMMANDS["plan"].purpose,
        description=(
            "Derive both ways to train a recipe on N replicas: with its batch kept, and with the batch grown. With "
            "--noise, foretell what each number of replicas would take, from what was measured."
        ),
        epilog="Knows numbers only: without --calibrate it loads no TensorFlow, and looks at no device.",
    )
    plan_command.add_flags(plan)
    foretelling_flags.add_flags(plan)
    plan.set_defaults(run=_run_plan, refuse=plan.error, parse=plan.parse_args)


def _run_plan(args: argparse.Namespace) -> int:
    defaults = {name: each for name, each in vars(args.parse([])).items() if name not in _NO_FLAGS}
    foretelling_flags.check_flags(args, defaults)
    if args.check is not None:
        from tfscale.plan.check import answer as answer_check

        print(answer_check(args))
    elif args.noise is not None:
        # Reading traces takes a moment; the recipe's arithmetic does not need it.
        from tfscale.plan.command import answer

        print(answer(args, None if args.calibrate is None else _calibration(*args.calibrate)))
    else:
        print(plan_command.answer(plan_command.check_recipe(args, args.refuse)))
    return 0


def _calibration(build: str, data: str) -> "Callable[[Trace], CriticalBatch]":
    # TensorFlow is behind this import.
    from tfscale.trials.branching_command import calibration

    return calibration(build, data)


def _add_launch(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    launch = subcommands.add_parser(
        "launch",
        help=COMMANDS["launch"].purpose,
        description=launch_flags.DESCRIPTION,
        epilog=launch_flags.EPILOG,
    )
    launch_flags.add_flags(launch)
    launch.set_defaults(run=_run_launch)


def _run_launch(args: argparse.Namespace) -> int:
    # Processes, sockets and signals as POSIX has them are behind this import; the other commands run without.
    from tfscale.launch.command import run

    return run(args)


def _add_doctor(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    doctor = subcommands.add_parser(
        "doctor",
        help=COMMANDS["doctor"].purpose,
        description=doctor_flags.DESCRIPTION,
        epilog=doctor_flags.EPILOG,
    )
    doctor_flags.add_flags(doctor)
    doctor.set_defaults(run=_run_doctor)


def _run_doctor(args: argparse.Namespace) -> int:
    # It looks at sockets, processes and packages; the other commands run without.
    from tfscale.doctor.command import run

    return run(args)


def _check_files(**given: str) -> None:
    """Refuses a script that is not there before seconds are spent on what would run it."""
    from tfscale.parity.target import find_target

    for role, text in given.items():
        find_target(text, role)
