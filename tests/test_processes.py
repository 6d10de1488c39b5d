import time

import psutil
import pytest

from tests.processes import CaseError, run_case, run_workers

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
    with pytest.raises(CaseError, match="not finished after 2 s"):
        run_case(f"{CASES}:sleep_deaf_to_sigterm", args=(str(pid_file),), timeout_s=2)
    assert [pid for pid in map(int, pid_file.read_text().split()) if _runs(pid)] == []


def test_workers_meet():
    assert run_workers(f"{CASES}:meet", 3) == [[1, 2], 1, 2]


def test_failed_worker_ends_the_group():
    with pytest.raises(CaseError) as caught:
        run_workers(f"{CASES}:fail_on_rank_1", 2, timeout_s=60)
    assert "process 0 of 2, still running" in str(caught.value)
    assert "ValueError: on purpose" in str(caught.value)


def _runs(pid):
    # A killed process whose parent is gone is collected by init, which may take a moment.
    deadline_s = time.monotonic() + 5
    while psutil.pid_exists(pid) and time.monotonic() < deadline_s:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return False
        time.sleep(0.02)
    return psutil.pid_exists(pid)
