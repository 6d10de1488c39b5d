"""Real workers whose plug is pulled: every example counts once, and the weights are those of a run left alone.

Two kills and a SIGTERM in one job here; `make bench-recovery` has twenty kills, on two workers and on three.
"""

import concurrent.futures
import os
import subprocess
import sys

import pytest

from benchmarks.recovery.__main__ import WORKER, read_history, weight_difference
from tests.repository import ROOT

DEADLINE_S = 240


def launch(output, workers, pulls=(), max_restarts=0):
    """Runs a job to its end; returns its exit status and what it printed."""
    command = [sys.executable, "-m", "tfscale", "launch", "--workers", str(workers)]
    command += ["--max-restarts", str(max_restarts), str(WORKER), "--output", str(output), "--jitter-s", "0.01"]
    command += [part for pull in pulls for part in ("--pull", pull)]
    environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            out, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            # The launcher leaves no worker behind, however it ends.
            process.kill()
    return process.returncode, out


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """A run left alone; and one of two workers that are killed, end on SIGTERM, and go on as one worker."""
    root = tmp_path_factory.mktemp("kills")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        alone = pool.submit(launch, root / "alone", 1)
        # The chief, the other one, and SIGTERM for one of them: no restart is left for that. Workers that begin again
        # near step 20 talk after 1, 3, 7 and 15 steps at the latest; epoch 3 is the steps from 24 to 35.
        pulls = ["7:0", "20:1", "25:1:SIGTERM"]
        stopped = launch(root / "killed", 2, pulls, max_restarts=2)
        reference = alone.result()
    resumed = launch(root / "killed", 1)
    return {"root": root, "reference": reference, "stopped": stopped, "resumed": resumed}


def test_left_alone(jobs):
    status, out = jobs["reference"]
    assert status == 0, out
    assert read_history(jobs["root"] / "alone")["number_out_not_once"] == [0.0] * 4


def test_kills_are_survived_and_sigterm_ends_with_143(jobs):
    status, out = jobs["stopped"]
    assert out.count("with signal SIGKILL") == 2, out
    assert status == 143, out
    assert "SIGTERM: saved in epoch 3" in out, out


def test_one_worker_goes_on_with_what_two_have_left(jobs):
    status, out = jobs["resumed"]
    assert status == 0, out
    root = jobs["root"]
    assert weight_difference(root / "killed", root / "alone") < 1e-5
    expected, history = (read_history(root / name) for name in ("alone", "killed"))
    assert history["number_out_not_once"] == [0.0] * 4
    for name, values in expected.items():
        assert history[name] == pytest.approx(values, rel=1e-5), name
