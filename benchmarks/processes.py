"""Starts a contender's processes, asks them for blocks of steps, and ends them.

Every wait has a deadline. What misses it is killed with all it started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contenders import Contender
from tfscale.launch.ports import free_addresses
from tfscale.launch.process_group import kill_group

ROOT = Path(__file__).resolve().parent.parent
_SHOWN_CHARACTERS = 4000


class ContenderError(RuntimeError):
    """A contender failed or missed its deadline."""


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One block of steps of one contender."""

    examples_per_s: float
    steps_per_s: float
    cpu_s_per_step: float
    max_rss_bytes: int
    loss: float
    versions: dict[str, str]


class RunningContender:
    """The processes of one contender, idle until asked.

    Args:
        contender: What they run.
        model: Name of the model they train.
        python: The interpreter.
        directory: For their logs.
        timeout_s: Deadline of each answer.
    """

    def __init__(self, contender: Contender, model: str, python: Path, directory: Path, timeout_s: float):
        self.contender = contender
        self._timeout_s = timeout_s
        self._workers: list[Worker] = []
        environments = _environments(contender)
        cores = sorted(os.sched_getaffinity(0))
        for rank, environment in enumerate(environments):
            worker = Worker(python, "benchmarks.child", environment, directory / f"{id(self)}-{rank}.log")
            self._workers.append(worker)
            worker.tell(
                {
                    "contender": dataclasses.asdict(contender),
                    "model": model,
                    "core": cores[rank % len(cores)],
                }
            )

    def run(self, steps_per_epoch: int, epochs: int) -> Measurement:
        """Runs one block on all workers at once and waits for the last."""
        for worker in self._workers:
            worker.tell({"steps_per_epoch": steps_per_epoch, "epochs": epochs})
        deadline_s = time.monotonic() + self._timeout_s
        answers = self._answers(deadline_s)
        steps_per_s = steps_per_epoch * epochs / max(answer["seconds"] for answer in answers)
        # The block has one more epoch than is timed.
        cpu_s = sum(answer["cpu_s"] for answer in answers) / (steps_per_epoch * (epochs + 1))
        return Measurement(
            examples_per_s=steps_per_s * self.contender.global_batch,
            steps_per_s=steps_per_s,
            cpu_s_per_step=cpu_s,
            max_rss_bytes=max(answer["max_rss_bytes"] for answer in answers),
            loss=answers[0]["loss"],
            versions=answers[0]["versions"],
        )

    def kill(self) -> None:
        """Ends all processes."""
        for worker in self._workers:
            worker.kill()

    def _answers(self, deadline_s: float) -> list[dict[str, Any]]:
        try:
            return [worker.answer(deadline_s) for worker in self._workers]
        except ContenderError as error:
            self.kill()
            lines = [f"{self.contender.label}: {error}"]
            for rank, worker in enumerate(self._workers):
                lines += [f"--- worker {rank}:", worker.log()]
            raise ContenderError("\n".join(lines)) from error


@contextlib.contextmanager
def running(
    contenders: Sequence[Contender], model: str, pythons: Sequence[Path], timeout_s: float
) -> Iterator[list[RunningContender]]:
    """Starts all contenders, one after the other, and ends them, whatever happens."""
    started: list[RunningContender] = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            for contender, python in zip(contenders, pythons, strict=True):
                started.append(RunningContender(contender, model, python, Path(directory), timeout_s))
                # Some measure their link when they start, which must not be while others import TensorFlow.
                started[-1].run(contender.steps_per_call, 1)
            yield started
        finally:
            for each in started:
                each.kill()


class Worker:
    """One process, its pipe and its log.

    Args:
        python: The interpreter.
        module: What it runs: answers each line of its standard input with one on its standard output.
        environment: Of the process.
        log: Where its standard error goes.
    """

    def __init__(self, python: Path, module: str, environment: dict[str, str], log: Path):
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [str(python), "-m", module],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def tell(self, request: dict[str, Any]) -> None:
        """Sends a request; a process that is gone is noticed when its answer is awaited."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, deadline_s: float) -> dict[str, Any]:
        """Waits for one line. An answer is far shorter than what a pipe passes on at once."""
        patience_s = max(0.0, deadline_s - time.monotonic())
        ready, _, _ = select.select([self._process.stdout], [], [], patience_s)
        if not ready:
            raise ContenderError("no answer before the deadline.")
        line = self._process.stdout.readline()
        if not line:
            raise ContenderError(f"ended with status {self._process.wait()}.")
        return json.loads(line)

    def log(self) -> str:
        """The end of what the process wrote."""
        return self._log.read_text(errors="replace")[-_SHOWN_CHARACTERS:]

    def kill(self) -> None:
        """Ends the process and whatever it started."""
        kill_group(self._process.pid)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def _environments(contender: Contender) -> list[dict[str, str]]:
    """The environment of each worker: this process's, without GPUs, in a cluster of their own."""
    own = plain_environment() | {"TF_USE_LEGACY_KERAS": "1" if contender.library == "tf_keras" else "0"}
    if contender.library == "jax":
        devices = f"--xla_force_host_platform_device_count={contender.num_replicas}"
        own |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": devices}
    if contender.num_workers == 1:
        return [own]
    addresses = free_addresses(contender.num_workers)
    return [own | cluster_environment(addresses, rank) for rank in range(contender.num_workers)]


def plain_environment() -> dict[str, str]:
    """This process's environment, without GPUs and outside of any cluster."""
    own = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    return own | {"CUDA_VISIBLE_DEVICES": "-1", "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}


def cluster_environment(addresses: Sequence[str], rank: int) -> dict[str, str]:
    """What tells a worker its place in a cluster."""
    return {
        "TF_CONFIG": json.dumps({"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": rank}})
    }
