"""The command as it is run: TensorFlow that is broken, a port in use, a job of two workers."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.processes import run_case
from tests.repository import ROOT
from tfscale.doctor.child import ask_tensorflow

_CLUSTER = ("TF_CONFIG", "SLURM_", "OMPI_", "PMI_", "JOB_COMPLETION_INDEX", "TFSCALE_", "TF_NUM_", "OMP_NUM_")


def run(*argv, env=None):
    """Returns exit status and standard output of `tfscale`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_CLUSTER)}
    ended = subprocess.run(
        [sys.executable, "-m", "tfscale", *argv],
        cwd=ROOT,
        env={**inherited, "CUDA_VISIBLE_DEVICES": "-1", **(env or {})},
        capture_output=True,
        text=True,
        timeout=150,
    )
    return ended.returncode, ended.stdout


@pytest.fixture
def broken(tmp_path):
    """An environment in which TensorFlow cannot be imported."""
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')")
    (tmp_path / "keras.py").write_text("import tensorflow")
    return {"PYTHONPATH": str(tmp_path)}


def test_broken_tensorflow_and_half_a_cluster(broken):
    status, out = run("doctor", "--json", env={**broken, "TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'})
    report = json.loads(out)
    by_check = {finding["check"]: finding for finding in report["findings"]}
    assert (status, report["status"], report["rank"]) == (1, "error", 0)
    assert "libcudart.so.13" in by_check["tensorflow"]["found"]
    assert "`TF_CONFIG` must have an object under 'task'" in by_check["job"]["found"]
    assert all(by_check[check]["way_out"] for check in ("tensorflow", "job"))
    # The rest was looked at all the same.
    assert by_check["packages"]["level"] == "ok"
    assert {"python", "driver", "threads", "space"} <= set(by_check)


def test_port_in_use_and_unknown_host(broken):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        config = {"cluster": {"worker": [f"127.0.0.1:{port}", "no-such-host.invalid:1"]}}
        config["task"] = {"type": "worker", "index": 0}
        status, out = run("doctor", env={**broken, "TF_CONFIG": json.dumps(config)})
    assert status == 1
    assert re.search(rf"error +port +Port {port} of this host must be free", out)
    assert re.search(r"error +names +not known here: no-such-host\.invalid", out)
    assert "-> Correct the names" in out


def test_job_of_two_workers():
    status, out = run("launch", "--workers", "2", "-m", "tfscale", "doctor", "--timeout-s", "60")
    assert status == 0, out
    assert "[0] tfscale doctor on " in out
    assert re.search(r"ok +peers +all 2 workers reach each other, and agree", out)
    assert re.search(r"ok +all-reduce +2 replicas \(ring\) add to the right sum", out)
    # Looked up while it listened.
    shown = re.sub(r"\s+\[0\]\s+|\s+", " ", out)
    assert re.search(r"exposure +TensorFlow's server listens on \S+:\d+, (that is every interface|in a network)", shown)
    assert re.search(r"ok +secret +what the workers say to each other is signed with TFSCALE_SECRET", shown)
    assert len(re.findall(r"\d B +[\d.]+ ms +[\d.,]+ MB/s", out)) == 4
    # The chief alone prints the table.
    assert "[1]" not in out


def test_a_worker_that_leaves_after_its_last_number_is_no_error(tmp_path):
    task = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 1}}
    case = "tests.doctor.cases_leaving:report_beside_one_that_left"
    report = run_case(case, args=(str(tmp_path),), env={"TF_CONFIG": json.dumps(task)})
    assert not [line for line in report if "error" in line]
    assert len(report[-1]["timings"]) == 4


def test_child_that_hangs_is_ended(broken, tmp_path, monkeypatch):
    (tmp_path / "keras.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr("tfscale.doctor.child._MORE_S", 0.5)
    report, _ = ask_tensorflow({**os.environ, **broken}, 1.0)
    assert report == {"stage": "import", "error": "it did not end within 1.5 s (it was at: import)"}


@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_bad_deadline(seconds):
    assert run("doctor", f"--timeout-s={seconds}")[0] == 2
