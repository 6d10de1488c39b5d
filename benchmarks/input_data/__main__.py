"""Runs both comparisons and prints them. Exit status 1 when a bar is missed."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tfscale import ClusterSpec
from tfscale.launch.ports import free_addresses

ROOT = Path(__file__).resolve().parent.parent.parent
AT_LEAST, WITHIN = 0.95, 0.1
_TIMEOUT_S = 180.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.input_data", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="epochs of each pipeline, in turn")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3], help="sizes of the job, beside 1")
    options = parser.parse_args(arguments)
    ratios, rates = _beside_by_hand(options.rounds)
    ratio = statistics.median(ratios)
    print(f"One worker, JPEG decode, crop and flip; {options.rounds} epochs in turn.")
    for name, (examples_per_s, mbytes_per_s) in rates.items():
        print(f"  {name:<12} {examples_per_s:8.0f} examples/s  {mbytes_per_s:6.1f} MB/s decoded")
    verdict = "ok" if ratio >= AT_LEAST else "MISSED"
    print(f"  ratio {ratio:.3f} [{min(ratios):.3f} .. {max(ratios):.3f}], must be at least {AT_LEAST}: {verdict}\n")
    missed = ratio < AT_LEAST
    print("Work of one worker per epoch, as a share of that of one alone; should be 1/W.")
    alone: dict[str, float] = {}
    for num_workers in (1, *options.workers):
        found = _job(num_workers, num_epochs=4)
        worst = {name: max(each[name] for each in found) for name in ("calls", "cpu_s")}
        alone = alone or worst
        shares = {name: worst[name] / alone[name] for name in worst}
        is_missed = any(abs(share * num_workers - 1) > WITHIN for share in shares.values())
        missed |= is_missed
        print(
            f"  {num_workers} worker(s): map calls {shares['calls']:.3f}, CPU time {shares['cpu_s']:.3f} "
            f"({worst['cpu_s']:.1f} s); 1/W = {1 / num_workers:.3f}: {'MISSED' if is_missed else 'ok'}"
        )
    return int(missed)


def _beside_by_hand(num_rounds: int) -> tuple[list[float], dict[str, tuple[float, float]]]:
    import tfscale
    from benchmarks.input_data import pictures

    files, labels = pictures.encode()
    dp = tfscale.DataParallel(global_batch=pictures.BATCH, devices=1, seed=1)
    contenders: dict[str, Iterable[Any]] = {
        "dp.dataset": dp.dataset((files, labels), map_fn=pictures.decode, shuffle=True),
        "by hand": pictures.by_hand(files, labels),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(num_rounds + 1):
        for name, batches in contenders.items():
            start_s = time.perf_counter()
            for _ in batches:
                pass
            # The first epoch makes the graph.
            if round_number:
                seconds[name].append(time.perf_counter() - start_s)
    ratios = [theirs / ours for ours, theirs in zip(seconds["dp.dataset"], seconds["by hand"], strict=True)]
    num_bytes = pictures.NUM_EXAMPLES * pictures.CROP**2 * 3 / 1e6
    rates = {
        name: (pictures.NUM_EXAMPLES / statistics.median(each), num_bytes / statistics.median(each))
        for name, each in seconds.items()
    }
    return ratios, rates


def _job(num_workers: int, *, num_epochs: int) -> list[dict[str, float]]:
    """What each worker of a job reports."""
    addresses = free_addresses(num_workers)
    command = [sys.executable, "-m", "benchmarks.input_data.worker", str(num_epochs)]
    workers = []
    for rank in range(num_workers):
        environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
        if num_workers > 1:
            environment["TF_CONFIG"] = ClusterSpec(addresses, rank).to_tf_config()
        workers.append(
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
    deadline_s = time.monotonic() + _TIMEOUT_S
    try:
        outputs = [worker.communicate(timeout=max(0.0, deadline_s - time.monotonic())) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    for worker, (_, errors) in zip(workers, outputs, strict=True):
        if worker.returncode:
            raise RuntimeError(f"A worker ended with status {worker.returncode}:\n{errors.decode()[-4000:]}")
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


if __name__ == "__main__":
    sys.exit(main())
