"""How many more trials does a study make in an hour, two at a time?

`python -m benchmarks.study.side_by_side` makes the same trials one and two at a time, in turn, and prints the ratio of
the times; at least 1.7 is wanted. No trial reaches its target, so that all make the steps of their budget. The share
of the cores that other work took in the meantime is printed beside it: where it is not small, the ratio says nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import ROOT
from tfscale.parity.target import Target, load
from tfscale.study.goal import parse_goal
from tfscale.study.schedule import Settings
from tfscale.trials.experiment import Experiment
from tfscale.trials.measuring import import_like_python
from tfscale.trials.studying import count_examples, find_parameters, run_study

LEAST = 1.7
_BATCHES, _TRIALS = (32, 64, 128), 4
_NEVER = "loss<1e-30"
_WORKLOADS = "benchmarks/study/workloads.py"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.study.side_by_side", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of one and of two at a time (default: 3)")
    parser.add_argument("--epochs", type=int, default=40, help="of each trial (default: 40)")
    options = parser.parse_args(arguments)
    import_like_python([str(ROOT)])
    build, data = (Target(_WORKLOADS, name) for name in ("perceptron_momentum", "digits"))
    examples = count_examples(data)
    experiment = Experiment(build, data, parse_goal(_NEVER), options.epochs * examples)
    settings = Settings(_BATCHES, _TRIALS, 1, find_parameters(build, ("rate",)), 32, "linear", examples)
    load(build)
    ratios = []
    for number in range(options.rounds):
        took = [_time(experiment, settings, at_a_time) for at_a_time in (1, 2)]
        ratios.append(took[0][0] / took[1][0])
        shown = ", ".join(f"{each:.1f} s ({100 * other:.0f} % of the cores other work's)" for each, other in took)
        print(f"round {number + 1}: {len(_BATCHES) * _TRIALS} trials, one and two at a time: {shown}", flush=True)
    ratio = statistics.median(ratios)
    print(f"two at a time: {ratio:.2f} times the trials an hour ({min(ratios):.2f} to {max(ratios):.2f})")
    return int(ratio < LEAST)


def _time(experiment: Experiment, settings: Settings, at_a_time: int) -> tuple[float, float]:
    """Seconds of all trials, the start of the processes among them, and the share of the cores that others took."""
    with tempfile.TemporaryDirectory() as folder:
        begun_s, busy_s, own_s = time.perf_counter(), _busy_s(), _own_s()
        results, _ = run_study(experiment, settings, Path(folder), at_a_time=at_a_time)
        took_s = time.perf_counter() - begun_s
        other_s = _busy_s() - busy_s - (_own_s() - own_s)
    wrong = [each.reason for each in results if each.reason not in ("budget", "not finite")]
    if wrong or len(results) != len(settings.batches) * settings.trials:
        raise RuntimeError(f"{len(results)} trials, of which {wrong} did not make all of their steps")
    return took_s, max(0.0, other_s) / took_s / (os.cpu_count() or 1)


def _busy_s() -> float:
    """Seconds that the cores of the machine have worked."""
    fields = [int(each) for each in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]]
    # Of user, nice, system, idle and waiting for disks the last two are no work.
    return (sum(fields[:3]) + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Seconds that this process and its children have worked; of children only those that have ended."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    sys.exit(main())
