"""What is told of a job to programs, by `tfscale launch --json`?"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from typing import Any

from tfscale.launch.restarts import Job, exit_status
from tfscale.launch.worker_plan import Worker


def plan_in_json(workers: Sequence[Worker]) -> str:
    """What a dry run tells: the workers that would be started."""
    return _in_json({"workers": [_worker(each) for each in workers]})


def manifest_in_json(text: str) -> str:
    """A manifest, which is YAML."""
    return _in_json({"manifest": text})


def job_in_json(job: Job) -> str:
    """How a job ended."""
    received, ending = job.ending.received, job.ending
    failed = None
    if ending.failed is not None and ending.status and received is None:
        failed = {
            "rank": ending.failed.rank,
            "address": ending.failed.address,
            "status": exit_status(ending.status),
            "left_early": ending.has_left,
            "last_lines": [line.decode(errors="replace") for line in ending.last_lines],
            "told": job.told,
        }
    return _in_json(
        {
            "status": job.status,
            "starts": job.starts,
            "signal": None if received is None else signal.Signals(received).name,
            "failed": failed,
            "workers": [_worker(each) for each in job.workers],
        }
    )


def _worker(worker: Worker) -> dict[str, Any]:
    return {
        "rank": worker.rank,
        "address": worker.address,
        "cores": worker.cores,
        "settings": dict(worker.settings),
        "argv": list(worker.argv),
    }


def _in_json(facts: dict[str, Any]) -> str:
    # A name of a file that is no text keeps its bytes, as escapes.
    return json.dumps(facts, indent=1) + "\n"
