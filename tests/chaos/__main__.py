"""Runs jobs whose schedules of faults are drawn, and says what was tried, survived and lost.

usage: python -m tests.chaos [--minutes 30] [--base SEED] [--seed SEED ...] [--write BUILD_NOTES.md] ...
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before anything imports NumPy: a process that has one thread may leave its network.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")

from tests.chaos import table
from tests.chaos.job import run
from tests.chaos.judgement import judge
from tests.chaos.schedule import DATA, SAME, draw
from tests.processes import run_case
from tests.programs.table import between_markers
from tfscale.errors import LaunchError
from tfscale.launch.isolation import isolate_network


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 when a job was lost."""
    options = _parser().parse_args(arguments)
    if options.lane:
        _serve()
        return 0
    base = options.base if options.base is not None else random.SystemRandom().randrange(10**6)
    seeds = iter(options.seed or range(base, base + 10**6))
    what = f"{len(options.seed)} seeds" if options.seed else f"seeds from {base} on, {options.minutes:g} minutes"
    print(f"{what}, {options.jobs} jobs at a time", flush=True)
    end_s = float("inf") if options.seed else time.monotonic() + 60 * options.minutes
    rows = _run_lanes(seeds, options.jobs, end_s)
    text = table.for_notes(rows, f"Seeds {base} to {base + len(rows) - 1}." if not options.seed else "")
    print(f"\n{text}")
    if options.write:
        options.write.write_text(between_markers(options.write.read_text(), "chaos", text))
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    return int(any(row.lost for row in rows))


def _run_lanes(seeds: Iterator[int], jobs: int, end_s: float) -> list[table.Row]:
    """What comes of each seed. Each lane is a process with a network of its own, and one job at a time."""
    rows: list[table.Row] = []
    lock = threading.Lock()

    def drive() -> None:
        with _lane() as lane:
            while time.monotonic() < end_s:
                with lock:
                    seed = next(seeds, None)
                if seed is None:
                    return
                print(seed, file=lane.stdin, flush=True)
                line = lane.stdout.readline()
                if not line:
                    row = table.Row(seed, draw(seed).data, [], lost="the runner itself has failed")
                else:
                    row = table.Row(**json.loads(line))
                with lock:
                    rows.append(row)
                    _tell(row)
                if not line:
                    return

    threads = [threading.Thread(target=drive) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(rows, key=lambda row: row.seed)


def _tell(row: table.Row) -> None:
    print(f"{row.seconds:4.0f} s  {'LOST' if row.lost else 'ok'}  {draw(row.seed)}", flush=True)
    if row.lost:
        print(f"{row.lost}\n{table.COMMAND.format(row.seed)}", *row.log, sep="\n", flush=True)


@contextlib.contextmanager
def _lane() -> Iterator[subprocess.Popen[str]]:
    """A process that runs the job of each seed that it is given; when this one is gone it ends, behind its last job."""
    command = [sys.executable, "-m", "tests.chaos", "--lane"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as lane:
        try:
            yield lane
        finally:
            lane.stdin.close()


def _serve() -> None:
    """Runs the job of every seed that is read, and writes what comes of it."""
    try:
        isolate_network()
        has_own_network = True
    except LaunchError as error:
        print(f"The network stays up: {error}", file=sys.stderr)
        has_own_network = False
    references: dict[str, Any] = {}
    for line in sys.stdin:
        start_s = time.monotonic()
        schedule = draw(int(line))
        with tempfile.TemporaryDirectory(prefix="chaos-") as directory:
            job = run(schedule, Path(directory), has_own_network=has_own_network)
        data = schedule.data
        if DATA[data] == SAME and data not in references:
            references[data] = run_case("tests.chaos.worker:reference", args=(data,))
        lost = judge(schedule, job, references.get(data))
        row = table.Row(
            schedule.seed,
            schedule.data,
            [fault.kind for fault in job.befell],
            lost=lost,
            starts=len(job.starts),
            begun_anew=len(job.begun_anew),
            has_own_network=has_own_network,
            seconds=time.monotonic() - start_s,
            log=_written(job) if lost else [],
        )
        print(json.dumps(dataclasses.asdict(row)), flush=True)


def _written(job) -> list[str]:
    return [
        f"--- start {number}, {tried.seconds:.0f} s, worker {rank}, status {each.status}:\n{each.output}"
        for number, tried in enumerate(job.starts)
        for rank, each in enumerate(tried.ended)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="no job begins after so long")
    parser.add_argument("--base", type=int, help="the first seed (default: any)")
    parser.add_argument("--seed", type=int, action="append", help="only this schedule; may be given several times")
    parser.add_argument("--jobs", type=int, default=2, help="jobs at a time")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between the markers of this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what came of each seed to this file")
    parser.add_argument("--lane", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
