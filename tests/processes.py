"""Run a case in a process of its own, or in a group of worker processes, within a deadline.

TensorFlow keeps one set of devices, and one failed collective spoils it for good: every case that
needs replicas gets a process of its own. A case is a module-level function, "package.module:function",
whose arguments and result can be pickled. What it raises, and what it writes to its standard
streams, is shown in the `CaseError` of the test that ran it, and where its threads stand when its
deadline has passed.

    weights = run_case("tests.training.cases_optimizers:sgd", args=(4,))
    first, second = run_workers("tests.training.cases_workers:fit", num_workers=2)

The process is a fork of a server that has imported TensorFlow, Keras and tfscale and started nothing,
which saves the five seconds that importing takes. It is a fresh one where that would not be the same:
where the case asks for it, and where the environment differs from the server's in a variable that an
import may read. A fork that is alone, no worker of several, ends once its result is written, its threads
have ended and the functions of `atexit` were called: nothing is freed.
"""

import atexit
import contextlib
import faulthandler
import gc
import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import tfscale
from tests.deadlines import Deadline
from tests.repository import ROOT
from tfscale import ClusterSpec
from tfscale.launch.ports import free_addresses
from tfscale.launch.process_group import kill_group
from tfscale.parity.child_process import end_with_parent
from tfscale.parity.fork_server import ForkedProcess, ForkServer, can_fork, wait_for_call

_POLL_INTERVAL_S = 0.02
_SHOWN_CHARACTERS = 8000
# By this signal, which nothing else has a use for, a case writes where each of its threads stands.
_SHOW_STACKS = signal.SIGRTMIN + 5
_SHOWING_S = 5.0
_PROGRAM = (sys.executable, "-m", "tests.processes")

# No import reads these. A case whose environment differs from the server's in any other variable gets a fresh process.
_READ_AFTER_IMPORT = {"TF_CONFIG", "PYTEST_CURRENT_TEST"}
# What importing TensorFlow, h5py and scikit-learn sets: this process may have it and the server not, or the reverse.
SET_BY_IMPORTS = {
    "ENABLE_RUNTIME_UPTIME_TELEMETRY",
    "HDF5_PLUGIN_PATH",
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
    "TF2_BEHAVIOR",
    "TPU_ML_PLATFORM",
    "TPU_ML_PLATFORM_VERSION",
}

# Of each job, one for the workers of even rank and one for those of odd rank: as in a real job, the order of a set,
# of hashes and of addresses is not the same on two workers that are next to each other.
_servers: dict[int, ForkServer] = {}

# Of a case: whether its process ends without freeing all that was imported, which takes a quarter of a second.
_ends_at_once = False


class CaseError(Exception):
    """A case raised, died, or did not finish in time."""


def run_case(
    target: str,
    *,
    args: Sequence[Any] = (),
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    fresh: bool = False,
) -> Any:
    """Runs a case in a process of its own and returns its result.

    Args:
        target: The function, as "package.module:function".
        args: Its positional arguments.
        env: Environment variables to add; the rest is this process's, without TF_CONFIG and GPUs.
        timeout_s: The deadline, thrice as much for one that still computes (`Deadline`); when it passes, the process
            and all it started are killed.
        fresh: Whether the case needs a process that has imported nothing.

    Raises:
        CaseError: The case raised, died, or did not finish in time.
    """
    [result] = _run([(target, tuple(args), dict(env or {}))], timeout_s, fresh=fresh)
    return result


def run_workers(
    target: str,
    num_workers: int,
    *,
    args: Sequence[Any] = (),
    env: Mapping[str, str] | None = None,
    timeout_s: float = 180.0,
) -> list[Any]:
    """Runs one case in `num_workers` processes that find each other through TF_CONFIG.

    The first worker that fails, and the deadline, end them all.

    Args:
        target: The function, as "package.module:function"; every worker calls it.
        num_workers: The number of processes.
        args: Its positional arguments, the same for all.
        env: Environment variables to add, the same for all.
        timeout_s: The deadline for the whole group.

    Returns:
        The results, by rank.

    Raises:
        CaseError: A worker raised, died, or did not finish in time.
    """
    addresses = free_addresses(num_workers)
    specs = [ClusterSpec(addresses, rank) for rank in range(num_workers)]
    calls = [(target, tuple(args), {**(env or {}), "TF_CONFIG": spec.to_tf_config()}) for spec in specs]
    return _run(calls, timeout_s)


class Ended(NamedTuple):
    """How one worker ended."""

    status: int | None
    """Its exit status, negative for a signal; None where it had to be killed."""
    result: Any
    """What the case returned; None where it returned nothing."""
    output: str
    """The end of what it wrote."""


def run_workers_to_the_end(
    target: str, num_workers: int, *, args: Sequence[Any] = (), waits_for: Sequence[int], timeout_s: float = 90.0
) -> list[Ended]:
    """As `run_workers`, for workers that fail on purpose: none ends the others.

    Args:
        target: As for `run_workers`.
        num_workers: Likewise.
        args: Likewise.
        waits_for: The ranks to wait for. The others, if they still run then, are killed.
        timeout_s: The deadline for all of these.

    Raises:
        CaseError: One of `waits_for` did not end in time.
    """
    with started_workers(target, num_workers, args=args) as cases:
        deadline = Deadline(timeout_s, [case.pid for case in cases])
        while any(cases[rank].poll() is None for rank in waits_for):
            if deadline.has_passed():
                raise _late(target, cases, timeout_s)
            time.sleep(_POLL_INTERVAL_S)
        return [case.ended() for case in cases]


@contextlib.contextmanager
def started_workers(target: str, num_workers: int, *, args: Sequence[Any] = ()) -> Iterator[list["Case"]]:
    """Starts one case in processes that find each other as those of `run_workers` do; one has nobody to find.

    What becomes of them is for the caller to see. Those that still run at the end are killed.

    Args:
        target: As for `run_workers`.
        num_workers: Likewise.
        args: Likewise.

    Yields:
        The processes, by rank.
    """
    addresses = free_addresses(num_workers)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as processes:
        cases = []
        for rank, address in enumerate(addresses):
            env = {"TF_CONFIG": ClusterSpec(addresses, rank).to_tf_config()} if num_workers > 1 else {}
            call = (target, tuple(args), env)
            case = processes.enter_context(_started(Path(directory, str(rank)), call, rank % 2, fresh=False))
            case.address = address
            cases.append(case)
        yield cases


def server_pids() -> set[int]:
    """The processes that stay until this one ends, to be forked for cases."""
    return {server.pid for server in _servers.values() if server.alive()}


def children() -> set[psutil.Process]:
    """All that this process has started, directly or not, but for the servers: what they started is here."""
    if not Path("/proc/self/task", str(os.getpid()), "children").exists():
        return {child for child in psutil.Process().children(recursive=True) if child.pid not in server_pids()}
    found, parents = set(), [os.getpid()]
    while parents:
        started = _children_of(parents.pop())
        parents += started
        for pid in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.add(psutil.Process(pid))
    return {child for child in found if child.pid not in server_pids()}


def _children_of(parent: int) -> list[int]:
    """As Linux lists them: psutil reads all processes of the machine, for milliseconds around each test."""
    found: list[int] = []
    for started in Path("/proc", str(parent), "task").glob("*/children"):
        # A process and a thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, started.read_text().split())
    return found


def _run(
    calls: list[tuple[str, tuple[Any, ...], dict[str, str]]], timeout_s: float, *, fresh: bool = False
) -> list[Any]:
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as processes:
        cases = [
            processes.enter_context(_started(Path(directory, str(rank)), call, rank % 2, fresh=fresh))
            for rank, call in enumerate(calls)
        ]
        deadline = Deadline(timeout_s, [case.pid for case in cases])
        while any(case.poll() is None for case in cases):
            if any(case.poll() for case in cases):
                break
            if deadline.has_passed():
                raise _late(calls[0][0], cases, timeout_s)
            time.sleep(_POLL_INTERVAL_S)
        results = [case.result() for case in cases]
        if any(case.poll() for case in cases) or None in results:
            raise CaseError(_report(calls[0][0], cases, "failed"))
        return [result[0] for result in results if result is not None]


class Case:
    """One running process and the files it talks through."""

    def __init__(self, process: "subprocess.Popen[bytes] | ForkedProcess", directory: Path) -> None:
        self.address = ""
        """Of the worker that it is, `host:port`."""
        self._process = process
        self._directory = directory

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def ended(self) -> Ended:
        """Returns how it ended, as far as it has."""
        return Ended(self.poll(), (self.result() or (None,))[0], self.output())

    def result(self) -> tuple[Any] | None:
        """Returns the result in a tuple, or None when the case left none."""
        path = self._directory / "result"
        return pickle.loads(path.read_bytes()) if path.exists() else None

    def stacks(self) -> str:
        """Returns where each of its threads stands; nothing before the case has begun."""
        path = self._directory / "stacks"
        if self.poll() is not None or not path.exists():
            return ""
        os.kill(self.pid, _SHOW_STACKS)
        deadline_s, size = time.monotonic() + _SHOWING_S, -1
        while time.monotonic() < deadline_s and (size <= 0 or path.stat().st_size > size):
            size = path.stat().st_size
            time.sleep(10 * _POLL_INTERVAL_S)
        return path.read_text(errors="replace")[:_SHOWN_CHARACTERS]

    def output(self) -> str:
        return (self._directory / "output").read_text(errors="replace")[-_SHOWN_CHARACTERS:]


@contextlib.contextmanager
def _started(
    directory: Path, call: tuple[str, tuple[Any, ...], dict[str, str]], server: int, *, fresh: bool
) -> Iterator[Case]:
    target, args, env = call
    directory.mkdir()
    # A case judges warnings as the test that runs it does, by the filters that pytest has set.
    (directory / "call").write_bytes(pickle.dumps((target, args, warnings.filters)))
    inherited = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    env = {**inherited, "CUDA_VISIBLE_DEVICES": "-1", **env}
    with (directory / "output").open("wb") as output:
        process: subprocess.Popen[bytes] | ForkedProcess
        if fresh or not can_fork() or not _may_be_forked(env, server):
            process = subprocess.Popen(
                [*_PROGRAM, str(directory)],
                cwd=ROOT,
                env=env,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        else:
            process = _servers[server].start(str(directory), env=env, output=output)
    try:
        yield Case(process, directory)
    finally:
        # The whole group, because a case may have started processes of its own.
        kill_group(process.pid)
        process.communicate()


def _may_be_forked(env: Mapping[str, str], index: int) -> bool:
    """Whether an import in a fresh process with this environment would do what it did in the server."""
    server = _servers.get(index)
    if server is None or not server.alive():
        if server is not None:
            server.close()
        own = {name: value for name, value in env.items() if name not in _READ_AFTER_IMPORT}
        _servers[index] = server = ForkServer(_PROGRAM, env=own, cwd=ROOT)
    ignored = _READ_AFTER_IMPORT | SET_BY_IMPORTS
    wanted, imported_with = (
        {name: value for name, value in each.items() if name not in ignored} for each in (env, server.env)
    )
    return wanted == imported_with


# What is registered first is called last: after the threads have ended, and what TensorFlow and Keras have registered.
@atexit.register
def _end_at_once() -> None:
    if _ends_at_once:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@atexit.register
def _close_servers() -> None:
    while _servers:
        _servers.popitem()[1].close()


def _late(target: str, cases: list[Case], timeout_s: float) -> CaseError:
    stacks = [case.stacks() for case in cases]
    return CaseError(_report(target, cases, f"not finished after {timeout_s:g} s", stacks))


def _report(target: str, cases: list[Case], what: str, stacks: Sequence[str] = ()) -> str:
    lines = [f"{target} {what}."]
    for rank, case in enumerate(cases):
        status = case.poll()
        state = "still running" if status is None else f"exit status {status}"
        lines += [f"--- process {rank} of {len(cases)}, {state}:", case.output()]
    for rank, shown in enumerate(stacks):
        lines += [f"--- process {rank} of {len(cases)}, where its threads stand:", shown] if shown else []
    return "\n".join(lines)


def _import_ahead() -> None:
    """Imports what most cases need, and starts nothing of it: no tensor, no list of devices."""
    # As in a fresh process: an import that warns fails.
    warnings.simplefilter("error")
    for module in ("tensorflow", "keras"):
        importlib.import_module(module)
    # What a public name stands for is imported when it is asked for: 340 modules, half a second to a second.
    for name in tfscale.__all__:
        getattr(tfscale, name)


def _main(directory: Path) -> None:
    end_with_parent()
    # Open until the process ends: it is written to from a signal.
    faulthandler.register(_SHOW_STACKS, (directory / "stacks").open("wb"), all_threads=True)
    target, args, filters = pickle.loads((directory / "call").read_bytes())
    warnings.filters[:] = filters
    module, _, function = target.partition(":")
    case = getattr(importlib.import_module(module), function)
    # What importing TensorFlow leaves stays for good. Without this half of the time of a small case goes to Python's
    # garbage collector, which looks through it whenever a function is traced.
    gc.freeze()
    result = case(*args)
    # Under another name first: a result is either whole or not there.
    partial = directory / "partial"
    partial.write_bytes(pickle.dumps((result,)))
    partial.rename(directory / "result")


if __name__ == "__main__":
    is_forked = len(sys.argv) == 1
    if is_forked:
        _import_ahead()
        sys.argv.append(wait_for_call())
    # The directories of two workers differ; their cases have no arguments.
    _main(Path(sys.argv.pop()))
    # A worker ends as in a job: others may still talk to it, which TensorFlow sees to at the end.
    _ends_at_once = is_forked and "TF_CONFIG" not in os.environ
