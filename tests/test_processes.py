import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from tests.processes import CaseError, children, run_case, run_workers, server_pids
from tests.repository import ROOT
from tfscale.parity.fork_server import ForkServerError

CASES = "tests.cases_processes"


def test_result_comes_back():
    assert run_case(f"{CASES}:add", args=([1], [2])) == [1, 2]
    assert run_case(f"{CASES}:nothing") is None


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        ("fail", "ValueError: on purpose"),
        ("warn", "UserWarning: on purpose"),
        ("exit_silently", "exit status 0"),
        ("absent", "has no attribute 'absent'"),
    ],
)
def test_failure_is_shown(case, shown):
    with pytest.raises(CaseError, match=shown):
        run_case(f"{CASES}:{case}")


@pytest.mark.filterwarnings("ignore:on purpose")
def test_warning_filters_of_the_test_hold_in_the_case():
    assert run_case(f"{CASES}:warn") is None


def test_environment_is_given_and_cluster_is_not_inherited(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "of the test run")
    assert run_case(f"{CASES}:environment", args=("TF_CONFIG",)) is None
    assert run_case(f"{CASES}:environment", args=("GIVEN",), env={"GIVEN": "1"}) == "1"


def test_deadline_kills_the_case_and_what_it_started(tmp_path):
    pid_file = tmp_path / "pids"
    with pytest.raises(CaseError, match=r"(?s)not finished after 2 s.*stand:.*in sleep_deaf_to_sigterm"):
        run_case(f"{CASES}:sleep_deaf_to_sigterm", args=(str(pid_file),), timeout_s=2)
    assert [pid for pid in map(int, pid_file.read_text().split()) if _runs(pid)] == []


def test_what_computes_is_given_thrice_the_time():
    assert run_case(f"{CASES}:compute", args=(3.0,), timeout_s=2) == "done"
    begun_s = time.monotonic()
    with pytest.raises(CaseError, match="not finished after 1 s"):
        run_case(f"{CASES}:compute", args=(600.0,), timeout_s=1)
    assert time.monotonic() - begun_s > 3.0


def test_workers_meet():
    assert run_workers(f"{CASES}:meet", 3) == [[1, 2], 1, 2]


def test_failed_worker_ends_the_group():
    with pytest.raises(CaseError) as caught:
        run_workers(f"{CASES}:fail_on_rank_1", 2, timeout_s=60)
    assert "process 0 of 2, still running" in str(caught.value)
    assert "ValueError: on purpose" in str(caught.value)


@pytest.mark.parametrize(("number", "shown"), [(signal.SIGSEGV, "exit status -11"), (signal.SIGKILL, "exit status -9")])
def test_next_case_is_not_touched_by_one_that_was_killed(number, shown):
    servers = server_pids()
    with pytest.raises(CaseError, match=shown):
        run_case(f"{CASES}:end_by", args=(int(number),))
    assert run_case(f"{CASES}:add", args=(1, 2)) == 3
    assert servers <= server_pids()


def test_streams_and_exit_status():
    with pytest.raises(CaseError, match=r"(?s)exit status 7.*to the output\nan error"):
        run_case(f"{CASES}:streams")


def test_case_is_forked_and_as_good_as_fresh():
    found = [run_case(f"{CASES}:origin") for _ in range(2)]
    assert {parent for parent, _, _ in found} <= server_pids()
    assert all(leads for _, leads, _ in found)
    (_, _, numbers), (_, _, others) = found
    assert not set(numbers) & set(others)


@pytest.mark.parametrize(
    "how",
    [
        {"fresh": True},
        # Read when TensorFlow is imported, or Keras, or a library beneath them.
        {"env": {"TF_CPP_MIN_LOG_LEVEL": "3"}},
        {"env": {"TF_ENABLE_ONEDNN_OPTS": "0"}},
        {"env": {"CUDA_VISIBLE_DEVICES": ""}},
        {"env": {"OMP_NUM_THREADS": "1"}},
        # Nobody knows who reads it.
        {"env": {"GIVEN": "1"}},
    ],
)
def test_who_asks_for_it_and_what_imports_may_read_has_a_fresh_process(how):
    parent, leads, _ = run_case(f"{CASES}:origin", **how)
    assert parent == os.getpid()
    assert leads


def test_variable_of_this_process_is_honoured(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    assert run_case(f"{CASES}:origin")[0] == os.getpid()
    assert run_case(f"{CASES}:environment", args=("KERAS_BACKEND",)) == "tensorflow"


def test_workers_next_to_each_other_differ_as_processes_do():
    first, second, third = run_workers(f"{CASES}:order_of_hashes", 3)
    assert first != second
    assert first == third


def test_server_that_is_killed_fails_its_case_and_is_replaced(tmp_path):
    with pytest.raises(ForkServerError, match="is gone"):
        run_case(f"{CASES}:tell_and_kill_server", args=(str(tmp_path),), timeout_s=60)
    case, server = _pids_told(tmp_path)
    assert not _runs(case)
    assert run_case(f"{CASES}:add", args=(1, 2)) == 3
    assert server not in server_pids()


def test_server_does_not_count_as_left():
    run_case(f"{CASES}:nothing")
    assert server_pids() & {child.pid for child in psutil.Process().children()}
    assert not server_pids() & {child.pid for child in children()}


def test_running_case_counts_as_left(tmp_path):
    seen = []

    def look():
        case, _ = _pids_told(tmp_path)
        seen.append(case in {child.pid for child in children()})

    watch = threading.Thread(target=look)
    watch.start()
    with pytest.raises(CaseError, match="not finished"):
        run_case(f"{CASES}:tell_and_sleep", args=(str(tmp_path),), timeout_s=5)
    watch.join()
    assert seen == [True]


def test_nothing_is_left_when_the_test_run_is_killed(tmp_path):
    code = f"from tests.processes import run_case; run_case({CASES + ':tell_and_sleep'!r}, args=({str(tmp_path)!r},))"
    run = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    case, server = _pids_told(tmp_path)
    assert psutil.Process(server).ppid() == run.pid
    run.kill()
    run.wait()
    assert [pid for pid in (case, server) if _runs(pid)] == []


def test_nothing_is_left_when_the_test_run_ends(tmp_path):
    code = f"from tests.processes import run_case as run; print(run({CASES + ':origin'!r})[0])"
    command = [sys.executable, "-Werror", "-c", code]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert not _runs(int(ended.stdout))


def _runs(pid):
    # A killed process whose parent is gone is collected by init, which may take a moment.
    deadline_s = time.monotonic() + 5
    while psutil.pid_exists(pid) and time.monotonic() < deadline_s:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return False
        time.sleep(0.02)
    return psutil.pid_exists(pid)


def _pids_told(directory):
    """The case and the server that it was forked from."""
    deadline_s = time.monotonic() + 60
    while not (directory / "pids").exists() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return map(int, (directory / "pids").read_text().split())
