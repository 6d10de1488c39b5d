"""How do trials run on Ray, each in a process of its own on whichever host has a device free?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray

from tfscale.errors import StudyError
from tfscale.parity.processes import Ending
from tfscale.trials.pool import last_words, trial_environment


class RayPool:
    """Runs requests as tasks of Ray: on a GPU each where the cluster has some, and on a CPU each where it has none.

    It joins the cluster of `RAY_ADDRESS`, or the one that runs on this host, or else starts one of this host alone.
    What a trial leaves comes back with its task, so that hosts need not share a directory; the script and its data must
    be found under the same path on each.

    Args:
        at_a_time: How many side by side; None for as many as devices.
        program: The module that performs a request.

    Raises:
        StudyError: When Ray cannot be reached.
    """

    def __init__(self, at_a_time: int | None = None, *, program: str = "tfscale.trials.child"):
        self._is_own = not ray.is_initialized()
        if self._is_own:
            try:
                ray.init(log_to_driver=False, logging_level="WARNING")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise StudyError(
                    "The engine 'ray' needs a Ray that answers.\n"
                    f"Received: {error} (RAY_ADDRESS={os.environ.get('RAY_ADDRESS', '')!r}). `ray start --head` starts "
                    "one; without RAY_ADDRESS one of this host alone is started."
                ) from error
        there = ray.cluster_resources()
        gpus, cpus = (int(there.get(name, 0)) for name in ("GPU", "CPU"))
        self.at_a_time = at_a_time or gpus or cpus or 1
        self.threads = 0 if gpus else max(1, cpus // self.at_a_time)
        share = {"num_gpus": min(1.0, gpus / self.at_a_time)} if gpus else {}
        self._perform = ray.remote(num_cpus=max(1, self.threads), **share)(_perform)
        self._program = program

    def run(self, requests: Sequence[tuple[str, Callable[[], dict[str, Any]]]]) -> Iterator[tuple[str, Ending, str]]:
        """As `tfscale.trials.pool.Pool.run`; the files that a request leaves are put into its `folder`.

        Args:
            requests: Names, and what makes the request when its task is about to be submitted.
        """
        waiting, running = list(requests), dict[Any, tuple[str, Path]]()
        try:
            while waiting or running:
                while waiting and len(running) < self.at_a_time:
                    name, make = waiting.pop(0)
                    content = {"threads": self.threads, "import_paths": [os.getcwd()], **make()}
                    folder = Path(content.pop("folder"))
                    running[self._perform.remote(self._program, content)] = name, folder
                (ended,), _ = ray.wait(list(running), num_returns=1)
                name, folder = running.pop(ended)
                yield name, *_result(ended, folder)
        finally:
            for each in running:
                ray.cancel(each, force=True)

    def close(self) -> None:
        """Leaves the cluster, or ends the one that was started."""
        if self._is_own:
            ray.shutdown()


def _result(ended: Any, folder: Path) -> tuple[Ending, str]:
    try:
        files, status, log = ray.get(ended)
    except ray.exceptions.RayError as error:
        return Ending(False, (1,)), str(error).strip().splitlines()[-1]
    for name, text in files.items():
        part = folder / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(folder / name)
    return Ending(False, (status,)), log


def _perform(program: str, content: dict[str, Any]) -> tuple[dict[str, str], int, str]:
    """Performs a request in a process of its own; returns the files that it left, its exit status, and its last words.

    Runs in a process of Ray's, which knows TensorFlow neither before nor after.
    """
    with tempfile.TemporaryDirectory(prefix="tfscale-trial") as place:
        folder = Path(place, "left")
        folder.mkdir()
        request, log = Path(place, "request"), Path(place, "log")
        request.write_text(json.dumps({**content, "folder": str(folder)}), encoding="utf-8")
        argv = (sys.executable, "-m", program, str(request))
        with (
            log.open("wb") as output,
            # It ends with all of its group when its input closes, as it does when this process is gone; not with Ray's.
            subprocess.Popen(
                argv,
                env=trial_environment(sys.path),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            # `communicate` would close its input.
            status = process.wait()
        files = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
        return files, status, last_words(log)
