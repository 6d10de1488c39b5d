"""Runs the corpus: every program as plain Keras on one device, and with the README's lines on replicas.

usage: python -m tests.programs [names...] [--replicas 1,2,3] [--workers] [--float64] [--write docs/programs.md] ...
"""

import argparse
import json
import os
import signal
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

# Before anything imports NumPy and TensorFlow: a fork is safe without other threads only, and BLAS starts its own.
os.environ.update(
    OPENBLAS_NUM_THREADS="1",
    OMP_NUM_THREADS="1",
    # So does the allocator of pyarrow, which comes with Ray and which pandas imports where it is there.
    JE_ARROW_MALLOC_CONF="background_thread:false",
    TF_CPP_MIN_LOG_LEVEL="2",
    # TensorFlow 2.21's oneDNN corrupts the heap with SeparableConv2D, in plain Keras as well.
    TF_ENABLE_ONEDNN_OPTS="0",
)

if "--gpu" not in sys.argv:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

# What a child would import anew each time comes along.
import sklearn.datasets  # noqa: F401

from tests.programs import forks, table
from tests.programs.judgement import Verdict, judge
from tests.programs.outcome import Arguments, Outcome, Setting
from tests.programs.program import Program, all_programs
from tests.programs.run import script_of
from tfscale import DataParallel  # noqa: F401


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 when a program ended otherwise than it may."""
    options = _parser().parse_args(arguments)
    if options.init and options.parallel:
        sys.exit("--parallel has no place with --init, whose lines `tfscale init` writes.")
    chosen = _chosen(options.names)
    if options.show:
        print(
            *(
                script_of(program, replace(_settings(program, options)[0], replicas=options.replicas[-1]))
                for program in chosen
            ),
            sep="\n",
        )
        return 0
    # SIGTERM ends the children, too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    started_s = time.monotonic()
    runs = _Runs(options.jobs, options.timeout)
    verdicts = _again_in_float64(runs, _verdicts(runs, chosen, options), options)
    rows = [(program, {str(setting): each for setting, each in verdicts[program].items()}) for program in chosen]
    print(table.for_screen(rows))
    bad = [(p, s, v) for p in chosen for s, v in verdicts[p].items() if not v.is_expected(p, s)]
    if options.verbose:
        for program, setting, verdict in bad:
            print(f"\n{program.name}, {setting}: {verdict}\n{verdict.output}")
    names = {program.name for program, _, _ in bad}
    took = f"{len(runs.outcomes)} runs, {time.monotonic() - started_s:.0f} s, CPU time {runs.cpu_s:.0f} s"
    print(f"\n{len(chosen)} programs: {len(chosen) - len(names)} as they should be, {len(names)} not ({took}).")
    if options.write:
        options.write.write_text(_with_tables(options.write.read_text(), rows))
    if options.json:
        found = {
            p.name: {str(s): [v.word, v.detail, v.is_expected(p, s), v.output] for s, v in verdicts[p].items()}
            for p in chosen
        }
        options.json.write_text(json.dumps(found, indent=1))
    return 1 if bad else 0


def _with_tables(text: str, rows: table.Rows) -> str:
    """`text` with the table of ordinary programs and that of reports: the rows of programs that were not run stay."""
    reported = [row for row in rows if row[0].reported]
    others = [row for row in rows if not row[0].reported]
    known = all_programs().values()
    if others:
        text = table.between_markers(
            text, "programs", table.for_readme(others, [each for each in known if not each.reported], text)
        )
    if reported:
        text = table.between_markers(
            text, "reported", table.reported_for_readme(reported, [each for each in known if each.reported], text)
        )
    return text


def _chosen(names: list[str]) -> list[Program]:
    programs = all_programs()
    programs |= {name: Program(Path(name).resolve()) for name in names if name.endswith(".py")}
    if unknown := [name for name in names if name not in programs]:
        sys.exit(f"There is no program {', '.join(unknown)}; there are {', '.join(programs)}.")
    return [programs[name] for name in names or programs]


class _Runs:
    """What was run, and what came of it."""

    def __init__(self, jobs: int, timeout_s: float) -> None:
        self.outcomes: dict[tuple[Program, Setting], list[Outcome]] = {}
        self.cpu_s = 0.0
        self._jobs, self._timeout_s = jobs, timeout_s

    def add(self, calls: list[tuple[Program, Setting]]) -> None:
        for program, setting, outcomes, cpu_s in forks.run_all(calls, jobs=self._jobs, timeout_s=self._timeout_s):
            self.outcomes[program, setting] = outcomes
            self.cpu_s += cpu_s
            print(f"{cpu_s:5.1f} s  {program.name}, {setting}: {self._says(program, setting)}"[:160], file=sys.stderr)

    def _says(self, program: Program, setting: Setting) -> str:
        """What is to be said at once: a run may end before the one that it is compared with."""
        if (program, setting.plain) in self.outcomes and setting != setting.plain:
            return str(self.verdict(program, setting))
        return next((outcome.error for outcome in self.outcomes[program, setting] if outcome.error), "done")

    def verdict(self, program: Program, setting: Setting) -> Verdict:
        [plain] = self.outcomes[program, setting.plain]
        return judge(setting, plain, self.outcomes[program, setting])


def _verdicts(runs: _Runs, chosen: list[Program], options: argparse.Namespace) -> dict:
    calls = [(program, setting) for program in chosen for setting in _settings(program, options)]
    plain = dict.fromkeys((program, setting.plain) for program, setting in calls)
    # Program by program, so that the first results come soon.
    order = sorted([*plain, *calls], key=lambda call: (chosen.index(call[0]), call[1].workers, call[1].replicas))
    runs.add(order)
    verdicts: dict[Program, dict[Setting, Verdict]] = defaultdict(dict)
    for program, setting in calls:
        verdicts[program][setting] = runs.verdict(program, setting)
    return verdicts


def _settings(program: Program, options: argparse.Namespace) -> list[Setting]:
    settings = [Setting(again=True)] if options.twice else [Setting(replicas) for replicas in options.replicas]
    if program.random and max(options.replicas) > 1 and not options.twice:
        settings.append(Setting(max(options.replicas), drawn=True))
    if (options.workers or program.workers) and not (options.no_workers or options.twice):
        settings += [Setting(replicas, workers=workers) for workers, replicas in options.jobs_of]
    given = {name: getattr(options, name) for name in ("float64", "one_scope", "init", "gpu", "ahead")}
    more = Arguments(compiled=options.compile, optimizers=options.optimizer)
    return [replace(each, **given, arguments=more, parallel=options.parallel) for each in settings]


def _again_in_float64(runs: _Runs, verdicts: dict, options: argparse.Namespace) -> dict:
    """What differs in float32 is only called different when it does in float64 as well."""
    if options.float64:
        return verdicts
    again = {
        (program, setting): replace(setting, float64=True)
        for program in verdicts
        for setting, verdict in verdicts[program].items()
        if verdict.word == "different" and not setting.drawn
    }
    exact = [(program, setting) for (program, _), setting in again.items()]
    runs.add([*dict.fromkeys((program, setting.plain) for program, setting in exact), *exact])
    for (program, setting), in_float64 in again.items():
        verdict = runs.verdict(program, in_float64)
        # What cannot be run in float64 stays as different as it was.
        if verdict.word in ("equal", "different"):
            verdicts[program][setting] = verdict
    return verdicts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="programs, or paths of scripts (default: all programs)")
    parser.add_argument("--replicas", default="1,2,3", type=_numbers, help="replica counts of one process")
    parser.add_argument("--workers", action="store_true", help="workers for all programs, not the marked ones only")
    parser.add_argument("--no-workers", action="store_true", help="workers for none")
    parser.add_argument(
        "--jobs-of",
        default="2",
        type=_jobs,
        metavar="W[xR],...",
        help="how many workers, and replicas of each (default: 2)",
    )
    parser.add_argument("--float64", action="store_true", help="everything in float64 from the start")
    parser.add_argument(
        "--one-scope", action="store_true", help="the whole script under the scope, what trains as well"
    )
    parser.add_argument("--init", action="store_true", help="the lines that `tfscale init` adds, in the README's place")
    parser.add_argument("--twice", action="store_true", help="plain Keras only, and twice: are the numbers the same?")
    parser.add_argument(
        "--gpu", choices=("float32", "tf32"), default="", help="on this machine's GPU, cut into replicas: multiplied so"
    )
    parser.add_argument("--ahead", action="store_true", help="rows are copied to replicas ahead of time, as on GPUs")
    parser.add_argument("--compile", default="", metavar="ARGUMENTS", help="what every `compile` gets beside its own")
    parser.add_argument("--optimizer", default="", metavar="ARGUMENTS", help="and every optimizer of Keras's")
    parser.add_argument("--parallel", default="", metavar="ARGUMENTS", help="and DataParallel beside the batch")
    parser.add_argument("--show", action="store_true", help="print the scripts with the README's lines; run nothing")
    parser.add_argument("--verbose", action="store_true", help="show the output of runs that failed")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--timeout", type=float, default=240.0, help="deadline of one run, in seconds")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the summaries between the markers of this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts to this file")
    return parser


def _jobs(text: str) -> list[tuple[int, int]]:
    """Workers, and replicas of each."""
    parts = [each.partition("x") for each in text.split(",")]
    return [(int(workers), int(replicas or 1)) for workers, _, replicas in parts]


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
