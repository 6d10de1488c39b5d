"""A real Slurm of two nodes, by `srun` and by the batch script in `examples/slurm`."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.engines import jobs
from tests.engines.running import end, environ, run_program, start, wait_until
from tests.repository import ROOT

CLUSTER = ROOT / "tests" / "engines" / "slurm_cluster.sh"
# The nodes have no GPUs, two cores, and a partition whose jobs give way.
ASK = ["sbatch", "--parsable", "--gpus-per-node=0", "--cpus-per-task=1", "--time=10"]
TRAIN = ["-m", "tests.engines.jobs"]


@pytest.fixture(scope="module")
def slurm(needs, tmp_path_factory):
    """The environment in which Slurm's commands find the cluster."""
    needs("slurm")
    folder = tmp_path_factory.mktemp("slurm")
    # Slurm runs what it is given as root, from a folder that others may enter.
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.geteuid() and each.is_relative_to(tmp_path_factory.getbasetemp()):
            each.chmod(0o755)
    try:
        made = subprocess.run(["bash", str(CLUSTER), "up", str(folder)], capture_output=True, text=True, timeout=200)
        assert made.returncode == 0, made.stdout + made.stderr
        yield {"SLURM_CONF": str(folder / "slurm.conf"), "PYTHON": sys.executable}
    finally:
        subprocess.run(["bash", str(CLUSTER), "down", str(folder)], capture_output=True, timeout=60, check=False)


@contextlib.contextmanager
def submitted(slurm, folder, *more):
    """Submits the example, and yields the number of its job, which does not outlive the block."""
    script = [str(ROOT / "examples" / "slurm" / "train.sbatch"), *TRAIN, str(folder), "--recovery"]
    command = [*ASK, "--output", str(folder / "output"), *script, "--every-steps", "1000", "--step-s", "0.5", *more]
    number = _ask(slurm, *command).strip()
    try:
        yield number
    finally:
        _ask(slurm, "scancel", "--signal=KILL", "--full", number)
        _ask(slurm, "scancel", number)


def _ask(slurm, *command):
    done = subprocess.run(command, env=environ(**slurm), cwd=ROOT, capture_output=True, text=True, timeout=60)
    return done.stdout


def state(slurm, number):
    return re.search(r"JobState=(\w+)", _ask(slurm, "scontrol", "show", "job", number))[1]


class Job:
    """A job, for who waits for something to happen in it."""

    def __init__(self, slurm, number, folder):
        self._slurm, self._number, self._folder = slurm, number, folder
        self.returncode = 1

    def poll(self):
        return 1 if state(self._slurm, self._number) in ("FAILED", "NODE_FAIL", "BOOT_FAIL") else None

    def communicate(self):
        path = self._folder / "output"
        return [path.read_text() if path.exists() else ""]


def reached(folder, step):
    return lambda: any(each["step"] == step for each in jobs.read_notes(folder, "step"))


def test_weights_are_those_of_one_process(slurm, tmp_path, undisturbed):
    ended = run_program(["srun", "-N2", "-n2", sys.executable, *TRAIN, str(tmp_path)], **slurm)
    assert ended.returncode == 0, ended.stdout
    assert {(each["host"], each["workers"]) for each in jobs.read_notes(tmp_path, "begins")} == {("n1", 2), ("n2", 2)}
    assert jobs.difference(tmp_path, undisturbed) < jobs.CLOSE


def test_survivors_name_the_one_that_is_killed(slurm, tmp_path):
    command = ["srun", "-N2", "-n2", sys.executable, *TRAIN, str(tmp_path), "--step-s", "0.2", "--epochs", "30"]
    process = start(command, **slurm)
    try:
        wait_until(reached(tmp_path, 6), process)
        [pid] = [each["pid"] for each in jobs.read_notes(tmp_path, "begins") if each["rank"] == 1]
        killed_s = time.time()
        os.kill(pid, signal.SIGKILL)
        output = process.communicate(timeout=90)[0]
    finally:
        end(process)
    assert process.returncode != 0
    [ends] = jobs.read_notes(tmp_path, "ends")
    assert re.search(r"worker 1 \(n2:\d+\) is gone", ends["error"]), output
    assert ends["error"].splitlines()[1] in output
    assert ends["time_s"] - killed_s < 15


def test_a_job_that_is_preempted_asks_for_another_turn_and_goes_on(slurm, tmp_path, undisturbed):
    with submitted(slurm, tmp_path) as number:
        job = Job(slurm, number, tmp_path)
        wait_until(reached(tmp_path, 3), job)
        process = start(["srun", "--partition=high", "-N2", "--ntasks-per-node=2", "hostname"], **slurm)
        try:
            assert process.communicate(timeout=120)[0].split().count("n1") == 2
        finally:
            end(process)
        output = (tmp_path / "output").read_text()
        assert "SIGTERM: saved in epoch" in output
        steps = len(jobs.read_notes(tmp_path, "step"))
        # Slurm itself waits for 2 minutes before it starts a job again.
        wait_until(lambda: state(slurm, number) == "PENDING", job)
        _ask(slurm, "scontrol", "update", f"JobId={number}", "StartTime=now")
        wait_until(lambda: state(slurm, number) == "COMPLETED", job, timeout_s=300)
    assert jobs.read_notes(tmp_path, "step")[steps]["step"] > 3
    assert jobs.difference(tmp_path, undisturbed) < jobs.CLOSE


def test_a_job_that_is_cancelled_saves_and_does_not_come_again(slurm, tmp_path):
    with submitted(slurm, tmp_path) as number:
        job = Job(slurm, number, tmp_path)
        wait_until(reached(tmp_path, 3), job)
        _ask(slurm, "scancel", number)
        wait_until(lambda: "SIGTERM: saved in epoch" in pathlib.Path(tmp_path, "output").read_text(), job)
        wait_until(lambda: not _ask(slurm, "squeue", "--noheader", "--jobs", number).strip(), job)
        assert state(slurm, number) == "CANCELLED"
