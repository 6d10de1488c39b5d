"""Perform the runs, and hand back what each has left."""

import contextlib
import importlib.util
import itertools
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfscale import errors
from tfscale.cluster import ClusterSpec
from tfscale.cluster.secret import SECRET, make_secret
from tfscale.errors import ParityError, TfscaleError
from tfscale.launch.ports import free_addresses
from tfscale.parity.fork_server import ForkServer, ForkServerError, can_fork
from tfscale.parity.outcome import Outcome, is_complete, load_outcome
from tfscale.parity.processes import Command, Ending, Process, run_groups, start_fresh
from tfscale.parity.request import Failure, Request, Script, load_failure, save_request
from tfscale.parity.run_spec import BITWISE, REFERENCE, RunSpec

IN_RUN = "TFSCALE_VERIFY_RUN"
"""Environment variable that is set in the processes of a run."""

_log = logging.getLogger(__name__)
_LOG_LINES = 12


@dataclass(frozen=True)
class RunResult:
    """What became of a run: its workers' outcomes, or a failure."""

    run: RunSpec
    workers: tuple[Outcome, ...] = ()
    failure: Failure | None = None


class Experiment:
    """Runs of one script, in processes that exchange files.

    Args:
        script: What every run does.
        directory: An empty directory for the files.
        timeout_s: Seconds that one run may take.
        on_start: Called when a run starts.

    It has to be closed, as `experiment_on` does.
    """

    def __init__(
        self,
        script: Script,
        directory: Path,
        *,
        timeout_s: float,
        on_start: Callable[[RunSpec], None],
    ) -> None:
        self._script = script
        self._directory = directory
        self._timeout_s = timeout_s
        self._on_start = on_start
        self._start: str | None = None
        self._numbers = itertools.count()
        self._starter = _Starter(timeout_s)

    def close(self) -> None:
        """Ends what was kept for further runs."""
        self._starter.close()

    def run_reference(self) -> Outcome:
        """Runs the script as it is; its weights and its batch become those of every later run.

        Raises:
            ParityError: When the script fails on one device too.
        """
        [result] = self.run([RunSpec(REFERENCE)])
        if result.failure is not None:
            raise failed_run(result)
        [outcome] = result.workers
        self._script = replace(self._script, global_batch=outcome.data.global_batch)
        return outcome

    def run(self, runs: Sequence[RunSpec]) -> Iterator[RunResult]:
        """Performs `runs`, two processes at a time, and yields their results as they come."""
        directories = [self._prepare(run) for run in runs]
        endings = run_groups(
            [_commands(run, workers) for run, workers in zip(runs, directories, strict=True)],
            timeout_s=self._timeout_s,
            on_start=lambda index: self._on_start(runs[index]),
            start=self._starter.start,
        )
        with contextlib.closing(endings):
            for index, ending in endings:
                result = _result(runs[index], directories[index], ending, self._timeout_s)
                if runs[index] == RunSpec(REFERENCE):
                    self._start = str(directories[index][0])
                yield result

    def _prepare(self, run: RunSpec) -> list[Path]:
        """Writes the request of each worker into a directory of its own."""
        directories = []
        parent = self._directory / str(next(self._numbers))
        for rank in range(run.num_workers):
            directories.append(parent / str(rank))
            directories[-1].mkdir(parents=True)
            save_request(Request(run, self._script, self._start), directories[-1])
        return directories


@contextlib.contextmanager
def experiment_on(
    script: Script, *, timeout_s: float, on_start: Callable[[RunSpec], None] | None
) -> Iterator[Experiment]:
    """An experiment in a directory of its own, which is gone when it ends.

    Args:
        script: What every run does.
        timeout_s: Seconds that one run may take.
        on_start: Called when a run starts; by default it is logged.
    """
    with tempfile.TemporaryDirectory(prefix="tfscale-verify-") as directory:
        made = Experiment(script, Path(directory), timeout_s=timeout_s, on_start=on_start or _log_start)
        with contextlib.closing(made) as experiment:
            yield experiment


def _log_start(run: RunSpec) -> None:
    _log.info("running %s", run)


class _Starter:
    """Starts the process of a run: where that is the same, as a fork of one that has imported TensorFlow.

    It is not the same for one worker of several, and those have a fresh process: in a real job the order of a set,
    which Python draws anew for each process, is not the same on two workers.

    Args:
        timeout_s: Seconds that importing may take.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._server: ForkServer | None = None
        self._may_fork = can_fork()

    def start(self, command: Command) -> Process:
        *program, directory = command.argv
        if "TF_CONFIG" in command.env or not self._may_fork:
            return start_fresh(command)
        if self._server is None:
            self._server = ForkServer(program, env=command.env, timeout_s=self._timeout_s)
        # What the environment changes may be read when something is imported.
        if dict(command.env) != self._server.env:
            return start_fresh(command)
        try:
            with command.log.open("wb") as log:
                return self._server.start(directory, env=command.env, output=log)
        except ForkServerError:
            # It cannot be forked, or importing fails: then the run says so, as it would without this.
            self._may_fork = False
            return start_fresh(command)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


def failed_run(result: RunResult) -> TfscaleError:
    """The error for a run that had to end well and did not; that of tfscale itself where bits are compared."""
    failure = result.failure or Failure("", "", "")
    own = vars(errors).get(failure.kind) if result.run.kind == BITWISE else None
    if failure.kind == ParityError.__name__ or (isinstance(own, type) and issubclass(own, TfscaleError)):
        error: TfscaleError = (own or ParityError)(failure.message)
        return error
    is_first = result.run.kind == REFERENCE or (result.run.kind, result.run.num_replicas) == (BITWISE, 1)
    way_out = (
        "Make the script run without tfscale first."
        if is_first
        else "It does run on one device; the lines below say where it fails here."
    )
    trace = "\n".join(f"    {line}" for line in failure.trace.splitlines())
    return ParityError(
        f"The run of {result.run} must end by itself.\n"
        f"Received: {failure.first_line} {way_out}" + (f"\n{trace}" if trace else "")
    )


def _commands(run: RunSpec, directories: Sequence[Path]) -> list[Command]:
    addresses = free_addresses(run.num_workers) if run.num_workers > 1 else ()
    cluster = {SECRET: make_secret()} if addresses else {}
    return [
        Command(
            (sys.executable, "-m", "tfscale.parity.child", str(directory)),
            {**_environment(addresses, rank), **cluster},
            directory / "log",
        )
        for rank, directory in enumerate(directories)
    ]


def _environment(addresses: tuple[str, ...], rank: int) -> dict[str, str]:
    """This process's environment, without its cluster and its GPUs, and with the run's."""
    environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    environ |= {IN_RUN: "1", "CUDA_VISIBLE_DEVICES": "-1"}
    if addresses:
        environ["TF_CONFIG"] = ClusterSpec(addresses, rank).to_tf_config()
    package = importlib.util.find_spec("tfscale")
    if package is not None and package.origin is not None:
        paths = [str(Path(package.origin).parent.parent), environ.get("PYTHONPATH", "")]
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environ


def _result(run: RunSpec, directories: list[Path], ending: Ending, timeout_s: float) -> RunResult:
    if all(map(is_complete, directories)):
        return RunResult(run, tuple(map(load_outcome, directories)))
    failures = [failure for directory in directories if (failure := load_failure(directory))]
    if failures:
        return RunResult(run, failure=failures[0])
    if ending.timed_out:
        kind, message = "Timeout", f"no result within {timeout_s:g} s; it was ended."
    else:
        statuses = ", ".join("ended" if s is None else str(s) for s in ending.statuses)
        kind, message = "Exit", f"no result; exit status {statuses}."
    logs = [(directory / "log").read_text(errors="replace") for directory in directories]
    trace = "\n".join("\n".join(log.strip().splitlines()[-_LOG_LINES:]) for log in logs)
    return RunResult(run, failure=Failure(kind, message, trace))
