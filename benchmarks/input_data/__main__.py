"""Runs the comparisons and prints them. Exit status 1 when a bar is missed."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.input_data.jobs import run_job

# Of the pipeline by hand; of 1/W; of the shortest time of a start; of the steps per second by equal shares.
AT_LEAST, WITHIN, AT_MOST_LONGER, AT_LEAST_BY_LOAD = 0.95, 0.1, 1.5, 1.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.input_data", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="epochs of each pipeline, in turn")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3], help="sizes of the job")
    options = parser.parse_args(arguments)
    parts = (
        _show_by_hand(options.rounds),
        _show_skipping(options.rounds),
        _show_work(options.rounds, options.workers),
        _show_uneven(options.rounds),
    )
    return int(not all(parts))


def _verdict(holds: bool) -> str:
    return "ok" if holds else "MISSED"


def _show_by_hand(num_rounds: int) -> bool:
    ratios, rates, cpu_ratio = _beside_by_hand(num_rounds)
    ratio = statistics.median(ratios)
    print(f"One worker, JPEG decode, crop and flip; {num_rounds} epochs in turn.")
    for name, (examples_per_s, mbytes_per_s) in rates.items():
        print(f"  {name:<12} {examples_per_s:8.0f} examples/s  {mbytes_per_s:6.1f} MB/s decoded")
    print(f"  CPU time {cpu_ratio:.3f} of that by hand, which other programs on the machine change less")
    verdict = _verdict(ratio >= AT_LEAST)
    print(f"  ratio {ratio:.3f} [{min(ratios):.3f} .. {max(ratios):.3f}], must be at least {AT_LEAST}: {verdict}\n")
    return ratio >= AT_LEAST


def _beside_by_hand(num_rounds: int) -> tuple[list[float], dict[str, tuple[float, float]], float]:
    import tfscale
    from benchmarks.input_data import pictures

    # To begin an epoch takes 0.08 s here and 0.03 s by hand: not to count for more than in an epoch of minutes.
    files, labels = pictures.encode(times=16)
    dp = tfscale.DataParallel(global_batch=pictures.BATCH, devices=1, seed=1)
    contenders: dict[str, Iterable[Any]] = {
        "dp.dataset": dp.dataset((files, labels), map_fn=pictures.decode, shuffle=True),
        "by hand": pictures.by_hand(files, labels),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    cpu_s: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(num_rounds + 1):
        # Each goes first as often as the other.
        for name in sorted(contenders, reverse=bool(round_number % 2)):
            start_s, start_cpu_s = time.perf_counter(), time.process_time()
            for _ in contenders[name]:
                pass
            # The first epoch makes the graph.
            if round_number:
                seconds[name].append(time.perf_counter() - start_s)
                cpu_s[name].append(time.process_time() - start_cpu_s)
    ratios = [theirs / ours for ours, theirs in zip(seconds["dp.dataset"], seconds["by hand"], strict=True)]
    num_bytes = len(labels) * pictures.CROP**2 * 3 / 1e6
    rates = {
        name: (len(labels) / statistics.median(each), num_bytes / statistics.median(each))
        for name, each in seconds.items()
    }
    return ratios, rates, statistics.median(cpu_s["dp.dataset"]) / statistics.median(cpu_s["by hand"])


def _show_skipping(num_rounds: int) -> bool:
    from benchmarks.input_data.skipping import time_skipping

    times_ms = time_skipping(num_rounds)
    holds = max(times_ms.values()) <= AT_MOST_LONGER * min(times_ms.values())
    print("From `start_at(0, step)` of shuffled arrays to the first batch; must not grow with the step.")
    shown = ", ".join(f"step {step}: {each:.1f} ms" for step, each in times_ms.items())
    print(f"  {shown}: {_verdict(holds)}\n")
    return holds


def _show_work(num_rounds: int, sizes: Sequence[int]) -> bool:
    print("Work of one worker per epoch, as a share of that for all rows in the same process; should be 1/W.")
    holds = True
    for num_workers in sizes:
        found = run_job("benchmarks.input_data.worker", num_workers, [num_rounds])
        calls = max(each["calls"] for each in found)
        cpu, ratios, own_s = max(_cpu_share(each["cpu_s"]) for each in found)
        is_met = all(abs(share * num_workers - 1) <= WITHIN for share in (calls, cpu))
        holds &= is_met
        print(
            f"  {num_workers} workers: map calls {calls:.3f}, CPU time {cpu:.3f} [{min(ratios):.3f} .. "
            f"{max(ratios):.3f}] ({own_s:.2f} s per epoch); 1/W = {1 / num_workers:.3f}: {_verdict(is_met)}"
        )
    print()
    return holds


def _cpu_share(cpu_s: dict[str, list[float]]) -> tuple[float, list[float], float]:
    """Share of the CPU time for all rows, that of each pair of epochs, and the seconds for the own rows.

    Of both the least: whatever else runs on the machine takes cache and cores, and can only add.
    """
    ratios = [own / whole for own, whole in zip(cpu_s["own"], cpu_s["whole"], strict=True)]
    return min(cpu_s["own"]) / min(cpu_s["whole"]), ratios, min(cpu_s["own"])


def _show_uneven(num_rounds: int) -> bool:
    if len(os.sched_getaffinity(0)) < 2:
        print("Two workers of which one is slowed down: not run, it needs two cores.")
        return True
    chief = run_job("benchmarks.input_data.uneven_workers", 2, [num_rounds])[0]
    ratio = statistics.median(chief["ratios"])
    holds = ratio >= AT_LEAST_BY_LOAD
    print(
        "Two workers, a core each, that of worker 1 shared with two busy loops; "
        'worker_load="auto" against equal shares.'
    )
    print(f"  shares measured {chief['shares']}")
    for name, steps_per_s in chief["steps_per_s"].items():
        print(f"  {name:<9} {steps_per_s:6.2f} steps/s")
    span = f"[{min(chief['ratios']):.2f} .. {max(chief['ratios']):.2f}]"
    print(f"  ratio {ratio:.2f} {span}, must be at least {AT_LEAST_BY_LOAD}: {_verdict(holds)}")
    return holds


if __name__ == "__main__":
    sys.exit(main())
