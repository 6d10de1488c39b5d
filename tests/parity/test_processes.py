import contextlib
import os
import sys
import time

import pytest

from tests.processes import children
from tfscale.parity.processes import Command, run_groups

DEAF = (
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"
)
SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def command(tmp_path):
    """Makes a command of Python code."""
    paths = (tmp_path / str(number) for number in range(100))
    return lambda code: Command((sys.executable, "-c", code), os.environ, next(paths))


def test_statuses(command):
    groups = [[command("pass")], [command("raise SystemExit(3)")], [command("import os; os.kill(os.getpid(), 9)")]]
    endings = dict(run_groups(groups, timeout_s=30))
    assert [endings[index].statuses for index in range(3)] == [(0,), (3,), (-9,)]
    assert [endings[index].succeeded for index in range(3)] == [True, False, False]


def test_output_goes_to_the_log(command):
    shown = command("import sys; print('out'); print('error', file=sys.stderr)")
    assert len(list(run_groups([[shown]], timeout_s=30))) == 1
    assert sorted(shown.log.read_text().splitlines()) == ["error", "out"]


def test_failure_ends_the_group(command):
    [(_, ending)] = run_groups([[command(SLEEP), command("raise SystemExit(1)")]], timeout_s=60)
    assert ending.statuses == (None, 1)
    assert not ending.timed_out


def test_deadline_ends_the_deaf_and_their_children(command):
    [(_, ending)] = run_groups([[command(DEAF)]], timeout_s=1)
    assert (ending.timed_out, ending.succeeded) == (True, False)
    assert not children()


def test_stopping_early_leaves_nothing(command):
    groups = [[command("pass")], [command(SLEEP)]]
    with contextlib.closing(run_groups(groups, timeout_s=60)) as endings:
        assert next(endings)[0] == 0
        assert children()
    assert not children()


def test_few_at_a_time(command):
    groups = [[command("import time; time.sleep(0.3)")] for _ in range(4)]
    groups.insert(1, [command("import time; time.sleep(0.3)") for _ in range(3)])
    most = []

    def count(index):
        most.append(len(children()) + len(groups[index]))

    assert len(list(run_groups(groups, timeout_s=60, max_processes=2, on_start=count))) == 5
    # The group of three runs alone.
    assert (max(most), sorted(most)[-2]) == (3, 2)


def test_child_notices_that_its_parent_is_gone(command, tmp_path):
    child = "import sys; sys.stdin.read(); open({!r}, 'w').close()".format(str(tmp_path / "noticed"))
    group = f"""
import os, sys
from pathlib import Path
from tfscale.parity.processes import Command, run_groups
child = Command((sys.executable, "-c", {child!r}), os.environ, Path({str(tmp_path / "log")!r}))
for _ in run_groups([[child]], timeout_s=60, on_start=lambda index: None):
    pass
"""
    # The parent is killed, and has no time to end its own child.
    assert [ending.timed_out for _, ending in run_groups([[command(group)]], timeout_s=2)] == [True]
    deadline_s = time.monotonic() + 10
    while not (tmp_path / "noticed").exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert (tmp_path / "noticed").exists()
