"""Runs all of it, two processes at a time, prints tables and draws curves. Exit status 1 when a bar is missed."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import tensorflow as tf

from benchmarks.equal_progress import EPOCHS, report
from benchmarks.equal_progress.published import PUBLISHED
from benchmarks.equal_progress.report import Run

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
RATIOS = (1, 2, 4, 8)
QUICK_RATIOS = (1, 2)
_TIMEOUT_S = 1800.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equal_progress", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind")
    parser.add_argument("--quick", action="store_true", help="one epoch on 1 and 2 replicas: a check of the machinery")
    parser.add_argument("--only", default="", metavar="NAME", help="recipes whose name begins so, such as AdamW")
    parser.add_argument("--results", type=Path, help="folder for what was measured and the picture")
    options = parser.parse_args(arguments)
    options.results = options.results or (RESULTS / "quick" if options.quick else RESULTS)
    start_s = time.monotonic()
    options.results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(2) as pool:
        # The longest first.
        ratios, epochs = (QUICK_RATIOS, 1) if options.quick else (RATIOS, EPOCHS)
        files = list(
            pool.map(lambda n: _run(n, options.seeds, epochs, options.only, Path(directory)), reversed(ratios))
        )
        lines = [line for file in files for line in file.read_text().splitlines()]
    (options.results / "equal_progress.jsonl").write_text("\n".join(lines) + "\n")
    runs = [Run(**json.loads(line)) for line in lines]
    rows = report.compare(runs)
    versions = f"TensorFlow {tf.__version__}, Keras {keras.__version__}"
    print(f"{datetime.date.today()}, {versions}; {options.seeds} seeds; {time.monotonic() - start_s:.0f} s.\n")
    print(report.render(rows))
    if any(run.recipe == PUBLISHED for run in runs):
        print(report.render_published(runs))
    picture = options.results / "equal_progress.png"
    report.draw(runs, picture)
    print(f"\nCurves: {picture}")
    return int(any(row.passed is False for row in rows))


def _run(num_replicas: int, num_seeds: int, epochs: int, only: str, directory: Path) -> Path:
    path = directory / f"{num_replicas}.jsonl"
    numbers = [str(number) for number in (num_replicas, num_seeds, epochs)]
    command = [sys.executable, "-m", "benchmarks.equal_progress.runs", *numbers, only, str(path)]
    # `run` kills the process when its time is over.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{num_replicas} replicas ended with status {done.returncode}:\n{done.stderr[-4000:]}")
    print(f"{num_replicas} replicas: done", file=sys.stderr, flush=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
