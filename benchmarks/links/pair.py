"""Two workers, and the blocks of steps that they run."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.links import network
from benchmarks.processes import ContenderError, Worker, cluster_environment, plain_environment

# Nobody else is in their networks.
_PORT = 61000


class Pair:
    """Two workers that are joined by a link.

    Args:
        workers: Their processes.
        timeout_s: Deadline of each answer.
    """

    def __init__(self, workers: list[Worker], timeout_s: float):
        self._workers = workers
        self._timeout_s = timeout_s

    def ask(self, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        """Tells both the same thing, or each its own, and waits for both answers."""
        for worker, request in zip(self._workers, requests * (2 // len(requests)), strict=True):
            worker.tell(request)
        deadline_s = time.monotonic() + self._timeout_s
        try:
            return [worker.answer(deadline_s) for worker in self._workers]
        except ContenderError as error:
            logs = [f"--- worker {rank}:\n{worker.log()}" for rank, worker in enumerate(self._workers)]
            raise ContenderError("\n".join([str(error), *logs])) from error

    def join(self) -> None:
        """Puts the link between their networks."""
        network.join([worker.pid for worker in self._workers])


@contextlib.contextmanager
def running(model: str, steps_per_call: int, timeout_s: float) -> Iterator[Pair]:
    """Starts two workers, joined by a link without a limit, and ends them, whatever happens."""
    addresses = [f"{address}:{_PORT}" for address in network.ADDRESSES[:2]]
    cores = sorted(os.sched_getaffinity(0))
    workers: list[Worker] = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            for rank in range(2):
                environment = plain_environment() | cluster_environment(addresses, rank)
                log = Path(directory, f"{rank}.log")
                workers.append(Worker(Path(sys.executable), "benchmarks.links.worker", environment, log))
            pair = Pair(workers, timeout_s)
            shared = {"model": model, "steps_per_call": steps_per_call}
            pair.ask(*({"rank": rank, "core": cores[rank % len(cores)], **shared} for rank in range(2)))
            pair.join()
            pair.ask({"joined": True})
            yield pair
        finally:
            for worker in workers:
                worker.kill()
