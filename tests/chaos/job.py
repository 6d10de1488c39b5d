"""How does a job run whose schedule says what befalls it? As real processes, started until the run is complete."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos import faults
from tests.chaos.judgement import advice, explain_end
from tests.chaos.outcome import Job, Tried
from tests.chaos.schedule import Attempt, Fault, Schedule
from tests.processes import Case, CaseError, run_case, started_workers

WORKER = "tests.chaos.worker"
# The deadlines are for machines that do much else: it takes seconds.
START_S, END_S = 240.0, 90.0
_MORE_STARTS = 2
_PAUSE_S, _AWAY_S = 3.0, 2.0
_POLL_S = 0.02


def run(schedule: Schedule, directory: Path, *, has_own_network: bool) -> Job:
    """Runs a job through its schedule, and until it is complete, hangs, or cannot be started again.

    Args:
        schedule: What befalls it.
        directory: Empty; of this job alone.
        has_own_network: Whether the network may be taken down. What needs that is left out otherwise.
    """
    job = Job()
    last = schedule.attempts[-1].workers
    for number, attempt in enumerate([*schedule.attempts, *[Attempt(last)] * _MORE_STARTS]):
        hit = [fault for fault in attempt.damages if faults.damage(directory / "run", fault)]
        start = _Start(directory, schedule.data, number, attempt, has_own_network=has_own_network)
        tried = start.run()
        tried.befell[:0] = hit
        job.starts.append(tried)
        if tried.is_complete or explain_end(tried):
            break
        if advised := advice(tried):
            # What the error says is to be done.
            job.begun_anew.append(advised)
            shutil.rmtree(directory / "run")
    return job


class _Start:
    """One start of a job, watched until all of its workers have ended."""

    def __init__(self, directory: Path, data: str, number: int, attempt: Attempt, *, has_own_network: bool):
        self._directory, self._data, self._number, self._attempt = directory, data, number, attempt
        self._has_own_network = has_own_network
        self._tried = Tried(attempt)
        self._cases: list[Case] = []
        self._planned: dict[int, float | None] = {}
        self._to_resume: list[tuple[float, int]] = []
        self._is_cut = False
        self._start_s = 0.0

    def run(self) -> Tried:
        args = (str(self._directory), self._data, self._number, self._attempt.faults)
        with contextlib.ExitStack() as stack:
            self._start_s = time.monotonic()
            self._cases = stack.enter_context(started_workers(f"{WORKER}:train", self._attempt.workers, args=args))
            stack.callback(self._mend_network)
            for index, fault in enumerate(self._attempt.faults):
                if fault.kind.startswith("network") and not self._has_own_network:
                    continue
                if fault.kind == "stranger":
                    stack.enter_context(faults.strangers(self._cases, fault.seed))
                    self._tried.befell.append(fault)
                else:
                    self._planned[index] = None if fault.step is not None else self._start_s + fault.delay_s
            self._watch()
            self._tried.ended = [case.ended() for case in self._cases]
        self._tried.seconds = time.monotonic() - self._start_s
        return self._tried

    def _watch(self) -> None:
        """Returns when all workers have ended, or the deadline is over."""
        deadline_s = self._start_s + START_S
        while True:
            running, now_s = self._running(), time.monotonic()
            # Of those who have ended, too: a worker says what is due, and that may be its end.
            for index, fault in self._due(now_s):
                del self._planned[index]
                self._tried.befell.append(fault)
                self._befall(index, fault, now_s)
                if fault is self._attempt.ending:
                    deadline_s = now_s + END_S
            for when_s, rank in [each for each in self._to_resume if now_s > each[0]]:
                self._to_resume.remove((when_s, rank))
                self._signal(rank, signal.SIGCONT)
            if self._has_stopped() and running == self._tried.victims:
                for rank in running:
                    self._signal(rank, signal.SIGKILL)
            if not running or now_s > deadline_s:
                return
            time.sleep(_POLL_S)

    def _running(self) -> set[int]:
        return {rank for rank, case in enumerate(self._cases) if case.poll() is None}

    def _has_stopped(self) -> bool:
        return any(fault.kind == "one stopped" for fault in self._tried.befell)

    def _due(self, now_s: float) -> Iterator[tuple[int, Fault]]:
        for index, when_s in list(self._planned.items()):
            fault = self._attempt.faults[index]
            if when_s is None and self._note(index).exists():
                # What a worker does itself has been done, or will be.
                waits = fault.kind in ("all killed", "network down", "network away for 2 s")
                when_s = self._planned[index] = now_s + (fault.delay_s if waits else 0.0)
            if when_s is not None and now_s >= when_s:
                yield index, fault

    def _note(self, index: int) -> Path:
        return self._directory / f"due-{self._number}-{index}"

    def _befall(self, index: int, fault: Fault, now_s: float) -> None:
        kind, own = fault.kind, fault.step is None
        if kind in ("one killed", "one stopped", "SIGTERM", "sys.exit"):
            self._tried.victims.add(fault.rank)
            if own:
                number = {"one killed": signal.SIGKILL, "one stopped": signal.SIGSTOP}.get(kind, signal.SIGTERM)
                self._signal(fault.rank, number)
        elif kind == "all killed":
            ranks = list(range(len(self._cases)))
            random.Random(fault.seed).shuffle(ranks)
            self._tried.victims.update(ranks)
            for rank in ranks:
                self._signal(rank, signal.SIGKILL)
        elif kind == "paused":
            self._to_resume.append((now_s + fault.delay_s + _PAUSE_S, fault.rank))
        elif kind == "second run":
            self._run_second()
            self._note(index).with_suffix(".done").touch()
        elif kind.startswith("network"):
            faults.set_network(is_up=False)
            self._is_cut = True
            if kind != "network down":
                time.sleep(_AWAY_S)
                self._mend_network()

    def _run_second(self) -> None:
        try:
            self._tried.refusal = run_case(f"{WORKER}:second_run", args=(str(self._directory), self._data))
        except CaseError as error:
            self._tried.refusal = f"{error}"

    def _mend_network(self) -> None:
        if self._is_cut:
            faults.set_network(is_up=True)
            self._is_cut = False

    def _signal(self, rank: int, number: int) -> None:
        if self._cases[rank].poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._cases[rank].pid, number)
