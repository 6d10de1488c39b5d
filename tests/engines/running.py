"""Runs programs of an engine as a person would, with what they need to find this repository."""

import os
import subprocess
import sys
import time

from tests.repository import ROOT
from tfscale.launch.process_group import kill_group

ENVIRON = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "PYTHONPATH": str(ROOT),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTEROP_THREADS": "2",
    "TF_NUM_INTRAOP_THREADS": "1",
    # Workers of a busy machine may need minutes to come.
    "TFSCALE_TIMEOUT_S": "300",
}


def environ(**more):
    """The environment of an engine's programs: this one's, without what describes another job."""
    return {**{name: value for name, value in os.environ.items() if name != "TF_CONFIG"}, **ENVIRON, **more}


def run(argv, *, timeout_s=300, **more):
    """Runs Python with these arguments to its end; standard output and error are together."""
    return run_program([sys.executable, *argv], timeout_s=timeout_s, **more)


def run_program(argv, *, timeout_s=300, **more):
    """Likewise any program; what it has started ends with it."""
    with start(argv, **more) as process:
        try:
            output = process.communicate(timeout=timeout_s)[0]
        finally:
            end(process)
    return subprocess.CompletedProcess(argv, process.returncode, output)


def start(argv, **more):
    """Starts a program in a session of its own."""
    return subprocess.Popen(
        argv,
        cwd=ROOT,
        env=environ(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(process):
    """Kills a program's session, as far as it is still there."""
    kill_group(process.pid)
    process.wait()


def wait_until(happened, process, timeout_s=200):
    """Returns when it has happened; fails when the process ends before, or it takes too long."""
    deadline_s = time.monotonic() + timeout_s
    while not happened():
        if process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode} before: {process.communicate()[0][-6000:]}")
        if time.monotonic() > deadline_s:
            end(process)
            raise AssertionError(f"did not happen in {timeout_s} s: {process.communicate()[0][-6000:]}")
        time.sleep(0.2)
