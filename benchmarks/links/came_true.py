"""Is the order in which 1, 2 and 4 replicas get there over a slow link the one that `tfscale plan` foretells?

`python -m benchmarks.links.came_true` measures a run of one device, calibrates, asks `tfscale plan` for each number of
replicas and each rate of the link, and only then trains on them: workers in networks of their own, whose links are
limited. A device is simulated by waiting 20 ms and 1 ms an example (`rented`): four would share two cores otherwise.
Times are to the loss that one replica has at its last step, without the first call. Exit status 1 where an order is
another one, or a time is off by more than 1.5 times.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.links import network, rented
from benchmarks.links.rented_worker import BATCH
from benchmarks.processes import ROOT, ContenderError, Worker, cluster_environment, plain_environment
from tfscale.plan.check import check_runs
from tfscale.plan.source import read_all, read_one
from tfscale.scaling.knob import format_table

REPLICAS = (1, 2, 4)
RATES = ("20mbit", "200mbit")
MOST_OFF = 1.5
# Idle links fill it: at 20 Mbit/s it is 6 ms' worth.
_BUCKET = "16kb"
_PORT = 61000
_TIMEOUT_S = 600.0
# So much further than foretold, to see when it gets there.
_FURTHER = 1.7


class Time(NamedTuple):
    """Of one number of replicas, to the loss."""

    steps: float
    step_s: float

    @property
    def total_s(self) -> float:
        """Of all steps."""
        return self.steps * self.step_s

    def describe(self) -> str:
        """For the table."""
        return f"{self.steps:.0f} x {1e3 * self.step_s:.1f} ms = {self.total_s:.1f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status; 0 with a message where there can be no such networks."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links.came_true", description=__doc__)
    parser.add_argument("--rates", nargs="+", default=list(RATES), help="of the link, as 20mbit")
    parser.add_argument("--steps", type=int, default=600, help="of one replica's run (default: 600)")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each number of replicas (default: 2)")
    parser.add_argument("--critical-batch", type=float, help="in the place of branches")
    options = parser.parse_args(given)
    obstacle = network.obstacle()
    if obstacle:
        print(f"Skipped: this benchmark needs network namespaces and a token bucket. {obstacle}", file=sys.stderr)
        return 0
    network.enter("benchmarks.links.came_true", given)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        noise = directory / "noise.csv"
        _tfscale("measure", *_targets(), "--steps", "400", "--global-batch", str(BATCH), "--output", noise, waits=True)
        critical = options.critical_batch or _calibrated(noise)
        # As `print(dp)` shows it on two replicas.
        apart = directory / "latency"
        apart.mkdir()
        latency_s = _train(options.rates[0], 2, 1, 0, apart)
        print(f"Critical batch {critical:.4g} examples, latency {1e3 * latency_s:.2f} ms.", flush=True)
        forecast = [(rate, _foretell(rate, latency_s, noise, critical, options.steps)) for rate in options.rates]
        found = [_compare(*each, options.seeds, directory) for each in forecast]
    return int(not all(found))


def _compare(rate: str, foretold: Mapping[int, Time], seeds: int, directory: Path) -> bool:
    """Trains, and prints what came of it; returns whether that was foretold."""
    runs = [_train_all(rate, foretold, seed, directory) for seed in range(1, seeds + 1)]
    text, is_true = verdict(foretold, runs)
    print(f"\n{rate}:\n{text}", flush=True)
    return is_true


def verdict(foretold: Mapping[int, Time], runs: Sequence[Mapping[int, Time]]) -> tuple[str, bool]:
    """What is printed of one rate, and whether it came true.

    Args:
        foretold: By number of replicas.
        runs: As it went with each seed, likewise.
    """
    rows, off = [], []
    for count, told in foretold.items():
        took = [run[count] for run in runs]
        off.append(statistics.geometric_mean(each.total_s for each in took) / told.total_s)
        rows.append((str(count), told.describe(), ", ".join(each.describe() for each in took), f"{off[-1]:.2f}"))
    expected, *orders = (sorted(each, key=lambda count, times=each: times[count].total_s) for each in (foretold, *runs))
    is_in_order = all(order == expected for order in orders)
    is_near = all(1 / MOST_OFF <= each <= MOST_OFF for each in off)
    shown = [" < ".join(map(str, order)) for order in (expected, *orders)]
    lines = [
        format_table(("replicas", "foretold", "came true", "off"), rows),
        f"order foretold {shown[0]}; came true {', '.join(shown[1:])}: {'ok' if is_in_order else 'MISSED'}",
        f"each within {MOST_OFF}x: {'ok' if is_near else 'MISSED'}",
    ]
    return "\n".join(lines), is_in_order and is_near


def _targets() -> list[str]:
    return [f"{rented.__file__}:build", f"{rented.__file__}:data"]


def _tfscale(command: str, *arguments: Any, waits: bool = False) -> str:
    environment = plain_environment() | {"PYTHONPATH": str(ROOT)} | ({rented.WAIT: "1"} if waits else {})
    words = [sys.executable, "-m", "tfscale", command, *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S)
    # 1 is an answer too: that more steps would tell more.
    if done.returncode not in (0, 1):
        raise ContenderError(f"tfscale {command} ended with status {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def _calibrated(noise: Path) -> float:
    shown = _tfscale("plan", "--noise", noise, "--calibrate", *_targets(), "--replicas", 1, "--json")
    critical = json.loads(shown)["critical_batch"]
    # Branches may find a lower end alone.
    return float(critical["low"] if critical["value"] is None else critical["value"])


def _foretell(rate: str, latency_s: float, noise: Path, critical: float, steps: int) -> dict[int, Time]:
    numbers = ",".join(map(str, REPLICAS))
    link = ["--link", rate, "--latency", f"{1e6 * latency_s:.0f}us"]
    link += ["--replicas", numbers, "--per-replica-batch", BATCH]
    shown = _tfscale("plan", "--noise", noise, *link, "--critical-batch", critical, "--run-steps", steps, "--json")
    rows = [row for row in json.loads(shown)["rows"] if row["per_replica_batch"] == BATCH]
    return {
        row["num_replicas"]: Time(row["steps"]["value"], row["total_s"]["value"] / row["steps"]["value"])
        for row in rows
    }


def _train_all(rate: str, foretold: Mapping[int, Time], seed: int, directory: Path) -> dict[int, Time]:
    folders = {}
    for count, told in foretold.items():
        folders[count] = directory / f"{rate}-{seed}-{count}"
        folders[count].mkdir()
        _train(rate, count, math.ceil(told.steps * (1 if count == 1 else _FURTHER)), seed, folders[count])
    # The lowest loss that all have reached: those of several replicas went further.
    goal, rows, _ = check_runs(read_all(list(map(str, folders.values()))))
    found = {}
    for count, row in zip(folders, rows, strict=True):
        seconds = read_one(folders[count]).seconds_per_step
        if row.steps is None or seconds is None:
            raise ContenderError(f"{count} replicas did not reach a loss of {goal:.4g} at {rate}.")
        found[count] = Time(row.steps, seconds)
    return found


def _train(rate: str, count: int, steps: int, seed: int, folder: Path) -> float:
    """Trains on so many workers; returns the latency of their links, 0 of one."""
    addresses = [f"{address}:{_PORT}" for address in network.ADDRESSES[:count]]
    cores = sorted(os.sched_getaffinity(0))
    waiting = plain_environment() | {rented.WAIT: "1"}
    workers: list[Worker] = []
    try:
        for rank in range(count):
            environment = waiting | (cluster_environment(addresses, rank) if count > 1 else {})
            log = folder / f"{rank}.log"
            workers.append(Worker(Path(sys.executable), "benchmarks.links.rented_worker", environment, log))
        shared = {"workers": count, "rate": rate, "bucket": _BUCKET, "steps": steps, "seed": seed}
        for rank, worker in enumerate(workers):
            worker.tell({"rank": rank, "core": cores[rank % len(cores)], "directory": str(folder), **shared})
        _answers(workers)
        if count > 1:
            network.join([worker.pid for worker in workers])
        for worker in workers:
            worker.tell({"joined": True})
        chief, *_ = _answers(workers)
        print(f"{rate}, {count} replicas, seed {seed}, {steps} steps", file=sys.stderr, flush=True)
        return float(chief["latency_s"] or 0.0)
    finally:
        for worker in workers:
            worker.kill()
        network.part()


def _answers(workers: Sequence[Worker]) -> list[dict[str, Any]]:
    deadline_s = time.monotonic() + _TIMEOUT_S
    try:
        return [worker.answer(deadline_s) for worker in workers]
    except ContenderError as error:
        logs = [f"--- worker {rank}:\n{worker.log()}" for rank, worker in enumerate(workers)]
        raise ContenderError("\n".join([str(error), *logs])) from error


if __name__ == "__main__":
    sys.exit(main())
