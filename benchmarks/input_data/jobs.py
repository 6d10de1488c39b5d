"""Starts the workers of a benchmark, and reads what each of them reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfscale import ClusterSpec
from tfscale.launch.ports import free_addresses

ROOT = Path(__file__).resolve().parent.parent.parent
_TIMEOUT_S = 300.0


def run_job(module: str, num_workers: int, arguments: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """Runs a module on every worker of a job.

    Args:
        module: Its `main` prints one JSON object at its end.
        num_workers: Processes; one is no cluster.
        arguments: For each of them.

    Returns:
        What each printed, by rank.
    """
    addresses = free_addresses(num_workers)
    command = [sys.executable, "-m", module, *map(str, arguments)]
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
