"""How do trials run side by side, each in a process of its own, and none of them alone on?"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tfscale.cluster.cores import find_cores
from tfscale.cluster.nvml import list_gpus
from tfscale.cluster.own_gpus import VISIBLE
from tfscale.launch.cores import divide_cores
from tfscale.launch.gpus import find_gpus
from tfscale.launch.screen import Lines
from tfscale.parity.fork_server import ForkServer, ForkServerError, can_fork
from tfscale.parity.processes import Command, Ending, Process, run_groups, start_fresh
from tfscale.trials.following import LogFollower

_IMPORT_S = 120.0
# Of a log, as many as are kept.
_LINES = 12


class Pool:
    """Runs requests, as many at a time as there are devices: GPUs, or else cores. Each has its part of the cores.

    Args:
        folder: For requests and logs.
        at_a_time: How many; None for as many as devices.
        timeout_s: Seconds that one may take.
        program: The module that performs a request.
        screen: Shows what a process writes, line by line, where a request's name is a number; None shows nothing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        at_a_time: int | None = None,
        timeout_s: float = 1e6,
        program: str = "tfscale.trials.child",
        screen: Lines | None = None,
    ):
        self.folder = folder
        self._program = (sys.executable, "-m", program)
        # How many trials each GPU has at the moment, and which one each request has.
        self._loads = dict.fromkeys(find_gpus(os.environ, list_gpus), 0)
        cores = find_cores()
        self.at_a_time = at_a_time or len(self._loads) or len(cores)
        # As many for all, where some have a core more: a result must not depend on the place.
        self.threads = max(1, len(cores) // self.at_a_time)
        # One alone has the host for itself, and many on few cores share them.
        divides = 1 < self.at_a_time <= len(cores)
        self._parts = divide_cores(cores, self.at_a_time) if divides else []
        self._followed = None if screen is None else LogFollower(screen)
        self._timeout_s = timeout_s
        self._used: dict[str, str] = {}
        self._server: ForkServer | None = None
        self._may_fork = can_fork() and not self._loads

    def run(self, requests: Sequence[tuple[str, Callable[[], dict[str, Any]]]]) -> Iterator[tuple[str, Ending, str]]:
        """Yields the name of each request, how its process ended, and the end of what it wrote.

        Args:
            requests: Names, and what makes the request when its process is about to start.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        files = [self.folder / f"{name}.request" for name, _ in requests]
        logs = [file.with_suffix(".log") for file in files]
        free, taken = list(self._parts), dict[int, tuple[int, ...]]()

        def begin(index: int) -> None:
            content = {"threads": self.threads, "import_paths": [os.getcwd()], **requests[index][1]()}
            if free:
                content["cores"] = taken[index] = free.pop(0)
            files[index].write_text(json.dumps(content), encoding="utf-8")
            if self._followed is not None:
                self._followed.begin(int(requests[index][0]), logs[index])

        groups = [
            [Command((*self._program, str(file)), _environment(), log)] for file, log in zip(files, logs, strict=True)
        ]
        endings = run_groups(
            groups,
            timeout_s=self._timeout_s,
            max_processes=self.at_a_time,
            on_start=begin,
            on_look=lambda: None if self._followed is None else self._followed.look(),
            start=self._start,
        )
        with contextlib.closing(endings):
            for index, ending in endings:
                if (gpu := self._used.pop(str(files[index]), None)) is not None:
                    self._loads[gpu] -= 1
                if index in taken:
                    free.append(taken.pop(index))
                if self._followed is not None:
                    self._followed.end(logs[index])
                yield requests[index][0], ending, last_words(logs[index])

    def close(self) -> None:
        """Ends what is kept for further requests."""
        if self._followed is not None:
            self._followed.close()
        if self._server is not None:
            self._server.close()

    def _start(self, command: Command) -> Process:
        path, env = command.argv[-1], dict(command.env)
        if self._loads:
            gpu = self._used[path] = min(self._loads, key=lambda each: self._loads[each])
            self._loads[gpu] += 1
            return start_fresh(Command(command.argv, env | {VISIBLE: gpu}, command.log))
        env |= {VISIBLE: "-1"}
        if not self._may_fork:
            return start_fresh(Command(command.argv, env, command.log))
        if self._server is None:
            self._server = ForkServer(self._program, env=env, timeout_s=_IMPORT_S)
        try:
            with command.log.open("wb") as log:
                return self._server.start(path, env=env, output=log)
        except ForkServerError:
            # It cannot be forked, or importing fails: then the trial says so, as it would without this.
            self._may_fork = False
            return start_fresh(Command(command.argv, env, command.log))


def _environment() -> dict[str, str]:
    package = importlib.util.find_spec("tfscale")
    if package is None or package.origin is None:
        return trial_environment([])
    return trial_environment([str(Path(package.origin).parent.parent), os.environ.get("PYTHONPATH", "")])


def trial_environment(import_paths: Sequence[str]) -> dict[str, str]:
    """What the process of a trial gets: it is alone, whoever has started it.

    Args:
        import_paths: In which it looks for modules first; none for those of this process.
    """
    environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if import_paths:
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, import_paths))
    return environ


def last_words(log: Path) -> str:
    """The end of what a process wrote."""
    return "\n".join(log.read_text(errors="replace").strip().splitlines()[-_LINES:])
