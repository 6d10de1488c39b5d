"""Open MPI and MPICH, real ones, by the scripts in `examples/mpi`."""

import os
import re
import signal
import sys
import time

import pytest

from tests.engines import jobs
from tests.engines.running import end, run_program, start, wait_until
from tests.repository import ROOT

HOSTS = "localhost,localhost"
MORE = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PYTHON": sys.executable}
# mpirun, when it is told to end, waits that long twice.
MORE |= {"MPIRUN": "mpirun.openmpi", "SAVE_S": "6"}
SCRIPTS = {"openmpi": "open_mpi.sh", "mpich": "mpich.sh"}


@pytest.fixture(params=SCRIPTS)
def command(request, needs):
    """How a script is run by two workers."""
    needs(request.param)
    return ["bash", str(ROOT / "examples" / "mpi" / SCRIPTS[request.param]), HOSTS, "-m", "tests.engines.jobs"]


def test_survivors_name_the_one_that_is_killed(command, tmp_path):
    process = start([*command, str(tmp_path), "--step-s", "0.2", "--epochs", "30"], **MORE)
    try:
        wait_until(lambda: len(jobs.read_notes(tmp_path, "step")) > 6, process)
        [pid] = [each["pid"] for each in jobs.read_notes(tmp_path, "begins") if each["rank"] == 1]
        killed_s = time.time()
        os.kill(pid, signal.SIGKILL)
        output = process.communicate(timeout=90)[0]
    finally:
        end(process)
    assert process.returncode != 0
    ends = jobs.read_notes(tmp_path, "ends")
    assert len(ends) == 1, output
    assert re.search(r"worker 1 \(localhost:\d+\) is gone", ends[0]["error"])
    # Nobody who reads the output has to look into notes.
    assert ends[0]["error"].splitlines()[0] in output
    assert ends[0]["time_s"] - killed_s < 15


def test_the_program_is_told_to_end_and_weights_are_those_of_one_process(command, tmp_path, undisturbed):
    more = [str(tmp_path), "--recovery", "--every-steps", "1000"]
    process = start([*command, *more, "--step-s", "0.5"], **MORE)
    try:
        wait_until(lambda: any(each["step"] == 3 for each in jobs.read_notes(tmp_path, "step")), process)
        process.terminate()
        output = process.communicate(timeout=90)[0]
    finally:
        end(process)
    assert "SIGTERM: saved in epoch" in output
    steps = len(jobs.read_notes(tmp_path, "step"))
    ended = run_program([*command, *more], **MORE)
    assert ended.returncode == 0, ended.stdout
    assert [each["workers"] for each in jobs.read_notes(tmp_path, "begins")] == [2] * 4
    assert jobs.read_notes(tmp_path, "step")[steps]["step"] > 3
    assert jobs.difference(tmp_path, undisturbed) < jobs.CLOSE
