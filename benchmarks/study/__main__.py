"""Runs what is missing of the studies, one after the other, and says what they show."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import ROOT, plain_environment
from benchmarks.study import __doc__ as purpose
from benchmarks.study import report
from tfscale.errors import StudyError
from tfscale.study import Study, fit, read_results

RESULTS = ROOT / "benchmarks" / "results" / "study"
_REFERENCE_BATCH = 32
# Of `tfscale measure`: fewer steps tell nothing.
_LEAST_STEPS = 40


@dataclass(frozen=True)
class Workload:
    """One study.

    Args:
        build: Its name in `workloads`.
        data: Likewise.
        target: To be reached.
        rule: By which the rates follow the batch.
    """

    build: str
    data: str
    target: str
    rule: str


_DATA = {
    "perceptron": ("digits", "loss=0.1"),
    "convolutions": ("photographs", "loss=0.25"),
    "transformer": ("sources", "val_loss=2.5"),
}
_RULES = {"momentum": "linear", "sgd": "linear", "adamw": "sqrt"}
WORKLOADS = {
    f"{model}_{optimizer}": Workload(f"{model}_{optimizer}", *_DATA[model], _RULES[optimizer])
    for model in _DATA
    for optimizer in _RULES
}
WORKLOADS["perceptron_momentum_again"] = Workload("perceptron_momentum", "other_digits", "loss=0.1", "linear")


@dataclass(frozen=True)
class Size:
    """How much is tried.

    Args:
        batches: As `tfscale study` takes them.
        trials: A batch.
        seeds: Of the better half.
        target: In place of the workload's own, for a check of the machinery.
    """

    batches: str
    trials: int
    seeds: int
    target: str | None = None


SIZES = {
    "whole": Size("8..1024", 8, 2),
    # As the design asks of the perceptron with momentum, and of another study of it.
    "sixteen": Size("8..1024", 16, 1),
    "small": Size("8,32,128,512", 8, 1),
    "quick": Size("32,128,512", 1, 1, "loss=1.5"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.study", description=purpose)
    parser.add_argument("--size", choices=SIZES, default="whole", help="how much is tried (default: whole)")
    parser.add_argument("--only", default=",".join(WORKLOADS), metavar="NAME,...", help="which studies, in which order")
    parser.add_argument("--at-a-time", type=int, metavar="N", help="trials side by side (default: cores)")
    parser.add_argument("--minutes", type=float, default=55.0, help="after which no study goes on (default: 55)")
    parser.add_argument("--results", type=Path, help="folder of the studies")
    parser.add_argument("--no-run", action="store_true", help="tell of the studies that are there")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    if unknown := [name for name in names if name not in WORKLOADS]:
        parser.error(f"there is no {unknown[0]!r}, but {', '.join(WORKLOADS)}")
    folder = (options.results or RESULTS) / options.size
    ends_s = time.monotonic() + 60 * options.minutes
    if not options.no_run:
        for name in names:
            left_s = ends_s - time.monotonic()
            if left_s > 0:
                _study(name, SIZES[options.size], folder / name, left_s, options.at_a_time)
    return _tell(names, folder, options.size)


def _study(name: str, size: Size, folder: Path, left_s: float, at_a_time: int | None) -> None:
    """Runs a study as a user does, and measures the noise of one run beside it."""
    own = WORKLOADS[name]
    where = "benchmarks/study/workloads.py"
    targets = [f"{where}:{own.build}", f"{where}:{own.data}"]
    command = [
        "study",
        *targets,
        "--target",
        size.target or own.target,
        "--batches",
        size.batches,
        "--trials",
        str(size.trials),
    ]
    command += ["--seeds", str(size.seeds), "--rule", own.rule, "--reference-batch", str(_REFERENCE_BATCH)]
    command += ["--directory", str(folder), "--budget-hours", f"{left_s / 3600:.5f}"]
    # 0: the critical batch is bracketed; 1: it is not; 2: it cannot be fitted.
    _tfscale([*command, *(["--at-a-time", str(at_a_time)] if at_a_time else [])], (0, 1, 2))
    trace = folder / "noise.csv"
    found = _fit(folder)
    if found is not None and not trace.exists():
        steps = str(max(_LEAST_STEPS, round(found.law.steps(_REFERENCE_BATCH))))
        batch = str(_REFERENCE_BATCH)
        _tfscale(["measure", *targets, "--steps", steps, "--global-batch", batch, "--output", str(trace)], (0, 1))


def _tfscale(arguments: Sequence[str], good: tuple[int, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", "tfscale", *arguments], cwd=ROOT, env=plain_environment(), check=False)
    if done.returncode not in good:
        raise RuntimeError(f"tfscale {' '.join(arguments)} ended with status {done.returncode}")


def _fit(folder: Path) -> Study | None:
    try:
        return fit(folder)
    except StudyError as error:
        print(f"{folder.name}: {error}", file=sys.stderr)
        return None


def _band(folder: Path) -> tuple[float, float | None] | None:
    """What `tfscale plan --noise` says of the run that was measured."""
    if not (folder / "noise.csv").exists():
        return None
    command = [sys.executable, "-m", "tfscale", "plan", "--noise", str(folder), "--replicas", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=plain_environment(), capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)["critical_batch"]
    return told["low"], told["high"]


def _tell(names: Sequence[str], folder: Path, size: str) -> int:
    studies = {name: study for name in names if (study := _fit(folder / name)) is not None}
    rows = {name: read_results(folder / name) for name in studies}
    bands = {name: band for name in studies if (band := _band(folder / name)) is not None}
    off = {name: report.foretold_examples(each) for name, each in rows.items()}
    findings = report.find(studies)
    findings += [report.of_bands(studies, bands), report.of_examples(list(off.values()))]
    trial_s = sum(row.seconds for each in rows.values() for row in each)
    print(f"{datetime.date.today()}, {size}: {SIZES[size]}; {trial_s:.0f} s of trials.\n")
    print(report.render(studies, {name: len(each) for name, each in rows.items()}, bands, off))
    print()
    for each in findings:
        verdict = {None: "not known", True: "ok", False: "MISSED"}[each.is_so]
        print(f"{each.what}: {each.figure}  {verdict}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "findings.json").write_text(json.dumps(report.to_json(findings), indent=1), encoding="utf-8")
    if any(each.is_so is False for each in findings):
        return 1
    return 2 if len(studies) < len(names) else 0


if __name__ == "__main__":
    sys.exit(main())
