"""Pulls the plug of workers at random steps, again and again, and compares with a run that was left alone.

    python -m benchmarks.recovery                       20 kills of a job of 2 workers, 20 of a job of 3
    python -m benchmarks.recovery --workers 2 --kills 3

Exits with 1 when a run ends with other weights, or an example was not seen exactly once in an epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfscale.launch.process_group import process_group

WORKER = Path(__file__).resolve().parent / "worker.py"
STEPS_PER_EPOCH = 12
TOLERANCE = 1e-5
_RESTART_S = 240.0
PARTS = (
    ("noticed, and the others stopped", "pulled", "stopped"),
    ("processes started", "stopped", "started"),
    ("TensorFlow imported", "started", "imported"),
    ("workers connected, model built", "imported", "began"),
    ("state restored", "began", "restored"),
    ("first step, with its trace", "restored", "stepped"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parse(arguments)
    status = 0
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        print(f"reference: one worker, {options.epochs} epochs, never killed", flush=True)
        launch(root / "reference", 1, [], options.epochs)
        for workers in options.workers:
            pulls = choose_pulls(options.kills, workers, options.epochs * STEPS_PER_EPOCH, seed=workers)
            print(f"{workers} workers, kill -9 before step:worker {' '.join(pulls)}", flush=True)
            start_s = time.monotonic()
            stops = launch(root / str(workers), workers, pulls, options.epochs)
            status |= _report(root, str(workers), len(pulls), stops, time.monotonic() - start_s)
    return status


def choose_pulls(kills: int, workers: int, steps: int, *, seed: int) -> list[str]:
    """Returns `kills` different random steps, in order, each with a random worker; the chief is among them."""
    chance = random.Random(seed)
    ranks = [chance.randrange(workers) for _ in range(kills)]
    ranks[: min(kills, workers)] = range(min(kills, workers))
    return [f"{step}:{rank}" for step, rank in zip(sorted(chance.sample(range(1, steps), kills)), ranks, strict=True)]


def launch(output: Path, workers: int, pulls: Sequence[str], epochs: int) -> list[float]:
    """Runs a job to its end; returns when the launcher had stopped a group, each time."""
    command = [sys.executable, "-m", "tfscale", "launch", "--workers", str(workers)]
    command += ["--max-restarts", str(len(pulls)), str(WORKER), "--output", str(output), "--epochs", str(epochs)]
    command += [part for pull in pulls for part in ("--pull", pull)] + ["--jitter-s", "0.02"]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    lines, stops = [], []
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with process_group(command, timeout_s=_RESTART_S * (1 + len(pulls)), env=environ, **options) as process:
        for line in process.stdout or ():
            lines.append(line)
            if "failed first" in line:
                stops.append(time.time())
        process.wait()
    if process.returncode != 0:
        raise SystemExit("".join(lines[-60:]) + f"\nThe job ended with status {process.returncode}.")
    return stops


def recovery_times(output: Path, stops: Sequence[float]) -> list[dict[str, float]]:
    """Returns the seconds of each part of each recovery, of the worker that was last."""
    events = [json.loads(line) for path in output.glob("events-*.jsonl") for line in path.read_text().splitlines()]
    kills = sorted(event["time_s"] for event in events if event["what"] == "pulled")
    found = []
    for kill_s, next_kill_s, stop_s in zip(kills, [*kills[1:], float("inf")], stops, strict=True):
        # What was noted before the next kill, by the slowest.
        at_s: dict[str, float] = {"pulled": kill_s, "stopped": stop_s}
        for event in events:
            name, moment_s = event["what"], event["time_s"]
            if kill_s < moment_s < next_kill_s and name != "pulled":
                at_s[name] = max(at_s.get(name, 0.0), moment_s)
        if "stepped" in at_s:
            found.append({part: at_s[end] - at_s[begin] for part, begin, end in PARTS})
    return found


def weight_difference(directory: Path, reference: Path) -> float:
    """Largest relative difference of any weight array: max|a - b| / max|b|."""
    weights, expected = np.load(directory / "weights.npz"), np.load(reference / "weights.npz")
    scales = {name: max(float(np.max(np.abs(expected[name]))), 1e-30) for name in expected.files}
    return float(np.max([np.max(np.abs(weights[name] - expected[name])) / scales[name] for name in expected.files]))


def read_history(directory: Path) -> dict[str, Any]:
    """Returns the `History` that a job has left."""
    history: dict[str, Any] = json.loads((directory / "history.json").read_text())
    return history


def _report(root: Path, name: str, kills: int, stops: Sequence[float], seconds: float) -> int:
    output = root / name
    difference = weight_difference(output, root / "reference")
    history, expected = read_history(output), read_history(root / "reference")
    not_once = sum(history["number_out_not_once"])
    logs = max(abs(a / b - 1) for key in expected for a, b in zip(history[key], expected[key], strict=True) if b)
    is_same = difference <= TOLERANCE and not_once == 0
    print(
        f"  {len(stops)} of {kills} kills, {seconds:.0f} s: largest relative difference of a weight {difference:.1e}, "
        f"of an epoch's log {logs:.1e}; examples not seen exactly once: {not_once:.0f}. "
        f"{'Equal.' if is_same else 'NOT EQUAL.'}"
    )
    times = recovery_times(output, stops)
    if times:
        for part in times[0]:
            each = [row[part] for row in times]
            print(f"  {part:34s} {statistics.median(each):5.1f} s   [{min(each):.1f} .. {max(each):.1f}]")
        totals = [sum(row.values()) for row in times]
        print(
            f"  {'from the kill to the next step':34s} {statistics.median(totals):5.1f} s   "
            f"[{min(totals):.1f} .. {max(totals):.1f}], {len(times)} recoveries",
            flush=True,
        )
    return int(not is_same or len(stops) != kills)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=8)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
