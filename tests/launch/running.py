"""Start `tfscale launch` on a small script, and see what is left of it."""

import os
import signal
import subprocess
import sys
import time

import psutil

from tests.repository import ROOT

# What a test run may have in its environment itself, and what this launcher would join.
_CLUSTER = ("TF_CONFIG", "SLURM_", "OMPI_", "PMI_", "JOB_COMPLETION_INDEX", "TFSCALE_", "CUDA_VISIBLE_DEVICES")
DEADLINE_S = 60

PRELUDE = """
import json, os, pathlib, signal, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
rank, workers = config["task"]["index"], config["cluster"]["worker"]
here = pathlib.Path(__file__).parent
def started():
    (here / f"started-{rank}-{time.monotonic_ns()}").write_text(str(os.getpid()))
def wait_for(pattern):
    while not list(here.glob(pattern)):
        time.sleep(0.01)
"""


class Launcher:
    """`tfscale launch` on a script of a few lines."""

    def __init__(self, directory):
        self._directory = directory

    def command(self, code, *flags, args=()):
        script = self._directory / "script.py"
        script.write_text(PRELUDE + code)
        return [sys.executable, "-m", "tfscale", "launch", *flags, str(script), *args]

    def start(self, code, *flags, args=(), env=None, **options):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_CLUSTER)}
        return subprocess.Popen(
            self.command(code, *flags, args=args),
            cwd=ROOT,
            env={**inherited, "CUDA_VISIBLE_DEVICES": "-1", **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def run(self, code, *flags, args=(), env=None):
        """Returns exit status, standard output and standard error."""
        process = self.start(code, *flags, args=args, env=env)
        out, err = process.communicate(timeout=DEADLINE_S)
        return process.returncode, out, err

    def wait_for(self, pattern, count=1):
        deadline_s = time.monotonic() + DEADLINE_S
        while len(found := list(self._directory.glob(pattern))) < count:
            assert time.monotonic() < deadline_s, f"no {pattern} was written"
            time.sleep(0.01)
        return found

    def left(self, within_s=5.0):
        """Returns the processes whose numbers were written to files named `started-...`, and that still run."""
        pids = [int(text) for path in self._directory.glob("started-*") if (text := path.read_text())]
        assert pids
        deadline_s = time.monotonic() + within_s
        while (running := [pid for pid in pids if _runs(pid)]) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        for pid in running:
            os.kill(pid, signal.SIGKILL)
        return running


def _runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
