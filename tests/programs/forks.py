"""Runs programs in forked copies of a process that has imported TensorFlow, Keras and tfscale, but started none.

Importing them costs 5 s and a fork some milliseconds. A fork has the thread that called it and no other, with every
lock as it was: it is safe as long as there are no other threads and TensorFlow has no runtime yet. `check` makes sure
of both before each fork. (NumPy's BLAS starts its threads on import unless it is told to have one: `__main__`.)
"""

import atexit
import gc
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tensorflow.python.eager import context

from tests.programs.outcome import Outcome, Setting
from tests.programs.program import Program
from tests.programs.run import run
from tfscale import ClusterSpec
from tfscale.launch.ports import free_addresses

_POLL_INTERVAL_S = 0.02
# So long a worker whose peer has failed may take to say what it thinks of it.
_GRACE_S = 20.0
_SHOWN_CHARACTERS = 8000


def run_all(
    calls: Sequence[tuple[Program, Setting]], *, jobs: int, timeout_s: float
) -> Iterator[tuple[Program, Setting, list[Outcome], float]]:
    """Runs every program in its setting, at most `jobs` processes at a time, and yields results as they come.

    Args:
        calls: What to run, in this order.
        jobs: Most processes at a time; a run on several workers takes one for each, and is run even so.
        timeout_s: The deadline of each run.

    Yields:
        The program, the setting, the outcomes by rank, and the seconds of CPU time that it took.
    """
    waiting = deque(calls)
    running: list[_Group] = []
    # What importing leaves is neither collected nor copied, by whichever child.
    gc.freeze()
    directory = tempfile.TemporaryDirectory(prefix="programs-")
    try:
        while waiting or running:
            free = jobs - sum(len(group.children) for group in running)
            if waiting and (not running or waiting[0][1].workers <= free):
                running.append(_start(*waiting.popleft(), Path(directory.name), timeout_s))
            for group in [group for group in running if group.has_ended()]:
                running.remove(group)
                outcomes = [child.outcome() for child in group.children]
                yield group.program, group.setting, outcomes, sum(child.cpu_s for child in group.children)
            time.sleep(_POLL_INTERVAL_S)
    finally:
        for group in running:
            group.end()
        directory.cleanup()
        gc.unfreeze()


def check() -> None:
    """Stops when a fork would not be safe.

    Raises:
        RuntimeError: When this process has another thread, or TensorFlow has started in it.
    """
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1 or context.context()._initialized:
        started = "has" if context.context()._initialized else "has not"
        raise RuntimeError(
            f"A fork would not be safe: this process has {threads} threads, TensorFlow {started} started."
        )


@dataclass
class _Child:
    pid: int
    directory: Path
    status: int | None = None
    killed: str = ""
    cpu_s: float = 0.0

    def has_ended(self) -> bool:
        if self.status is None:
            self._wait(os.WNOHANG)
        return self.status is not None

    def kill(self, why: str) -> None:
        if not self.has_ended():
            self.killed = why
            # By SIGKILL: a TensorFlow worker that waits for a peer ignores SIGTERM.
            os.kill(self.pid, signal.SIGKILL)
            self._wait(0)

    def _wait(self, options: int) -> None:
        pid, status, usage = os.wait4(self.pid, options)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime

    def outcome(self) -> Outcome:
        output = (self.directory / "output").read_text(errors="replace")[-_SHOWN_CHARACTERS:]
        result = self.directory / "result"
        if self.killed or not result.exists():
            outcome = Outcome(error=self.killed or f"Died: exit status {self.status}")
        else:
            outcome = pickle.loads(result.read_bytes())
        shutil.rmtree(self.directory)
        return replace(outcome, output=output)


@dataclass
class _Group:
    program: Program
    setting: Setting
    children: list[_Child]
    timeout_s: float
    started_s: float = field(default_factory=time.monotonic)
    failed_s: float | None = None

    def has_ended(self) -> bool:
        now_s = time.monotonic()
        for child in self.children:
            if child.has_ended() and child.status:
                self.failed_s = self.failed_s or now_s
        if self.failed_s and now_s > self.failed_s + _GRACE_S:
            self.end("Killed: another worker has failed")
        if now_s > self.started_s + self.timeout_s:
            self.end(f"Killed: not finished after {self.timeout_s:g} s")
        return None not in [child.status for child in self.children]

    def end(self, why: str = "Killed: interrupted") -> None:
        for child in self.children:
            child.kill(why)


def _start(program: Program, setting: Setting, directory: Path, timeout_s: float) -> _Group:
    addresses = free_addresses(setting.workers)
    children = []
    for rank in range(setting.workers):
        tf_config = ClusterSpec(addresses, rank).to_tf_config() if setting.workers > 1 else None
        own = Path(tempfile.mkdtemp(prefix=f"{program.name}-", dir=directory))
        (own / "output").touch()
        children.append(_Child(_fork(program, setting, tf_config, own, timeout_s), own))
    return _Group(program, setting, children, timeout_s)


def _fork(program: Program, setting: Setting, tf_config: str | None, directory: Path, timeout_s: float) -> int:
    check()
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    status = 1
    try:
        # Those of the parent are not its own; what the program registers is called as at the end of a script.
        atexit._clear()
        _settle(tf_config, directory, timeout_s)
        outcome = run(program, setting, directory)
        # Under another name first: a result is either whole or not there.
        (directory / "partial").write_bytes(pickle.dumps(outcome))
        (directory / "partial").rename(directory / "result")
        status = 1 if outcome.error else 0
    except BaseException:
        traceback.print_exc()
    finally:
        if tf_config is not None:
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        # Nothing of the parent's is cleaned up here.
        os._exit(status)


def _settle(tf_config: str | None, directory: Path, timeout_s: float) -> None:
    """Gives a child a folder, streams, an environment and an end of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Whoever kills the parent does not leave this one behind for good.
    signal.alarm(int(timeout_s) + 10)
    output = os.open(directory / "output", os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(output, stream)
    # What the program puts into temporary files goes with the rest.
    os.chdir(directory)
    tempfile.tempdir = os.environ["TMPDIR"] = str(directory)
    os.environ.pop("TF_CONFIG", None)
    if tf_config:
        os.environ["TF_CONFIG"] = tf_config
