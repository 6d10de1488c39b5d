"""A directory belongs to one run, and to one process at a time."""

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
import types

import pytest

from tests.processes import run_case
from tests.repository import ROOT
from tests.training.together import Failure, run_together
from tfscale.recovery.decision import Settings
from tfscale.recovery.directory import RunDirectory
from tfscale.recovery.folder import Saved
from tfscale.recovery.lock import DirectoryLock

CASES = "tests.recovery.cases_directory"
HOLD = "from tests.recovery.cases_directory import hold; import sys; hold(sys.argv[1])"

IS_FREE = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
TAKE = """import fcntl, json, os, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
file.write(json.dumps([os.uname().nodename, os.getpid(), "now"]))
file.truncate()
file.flush()
print("taken", flush=True)
sys.stdin.read()
"""

# What is there, what comes, and what differs; 5 steps an epoch.
OTHERS = {
    "more rows": ("dp.dataset", (("name", "more rows"),), ["examples: 40 when it was saved, 80 now"], 20),
    "other rows": ("dp.dataset", (("name", "other rows"),), ["fingerprint of some examples: '"], 10),
    "other kind": ("dp.dataset", (("name", "arrays"),), ["data: 'a dp.dataset of arrays' when", "'arrays' now"], 10),
    "fewer arrays": ("arrays", (("name", "fewer arrays"),), ["examples: 40 when it was saved, 24 now"], 6),
    "fewer steps": ("dp.dataset", (("steps_per_epoch", 2),), ["steps of an epoch: 5 when it was saved, 2 now"], 4),
    "other momentum": ("dp.dataset", (("momentum", 0.5),), ["optimizer 0's momentum: 0.9 when", "0.5 now"], 10),
}
SAME = {
    "more epochs": ("dp.dataset", ()),
    "another batch": ("dp.dataset", (("batch", 4),)),
    "arrays": ("arrays", ()),
    "tf.data": ("tf.data", ()),
}


def is_free(directory):
    """Whether another process could lock it."""
    command = [sys.executable, "-c", IS_FREE, str(directory / "lock")]
    return subprocess.run(command, stderr=subprocess.DEVNULL, timeout=60).returncode == 0


@contextlib.contextmanager
def holding(directory):
    """Another process has the directory meanwhile."""
    command = [sys.executable, "-c", TAKE, str(directory / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "taken\n"
        yield process
        process.stdin.close()


@pytest.fixture(scope="module")
def results():
    calls = {name: (f"{CASES}:another_of", (first, given)) for name, (first, given, *_) in {**OTHERS, **SAME}.items()}
    found = run_together(list(calls.values()), timeout_s=400)
    return {name: found[call] for name, call in calls.items()}


@pytest.mark.parametrize("name", OTHERS)
def test_another_run_is_refused_with_what_differs(results, name):
    found = results[name]
    assert not isinstance(found, Failure), found
    *_, parts, steps = OTHERS[name]
    assert [part for part in [*parts, "Recovery(..., restart=True)"] if part not in found["refused"]] == []
    # With it both of its epochs are made, and what was there is named.
    assert found["steps"] == steps
    assert [line for line in found["said"] if "begins anew" in line]


@pytest.mark.parametrize("name", SAME)
def test_the_same_run_goes_on_also_where_it_might_begin_anew(results, name):
    found = results[name]
    assert not isinstance(found, Failure), found
    assert found["refused"] == ""
    assert [line for line in found["said"] if "begins anew" in line] == []


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + 120
        while not (tmp_path / "held").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        message = run_case(f"{CASES}:second", args=(str(tmp_path),))
    finally:
        process.kill()
        process.wait()
    assert f"process {process.pid} on host {socket.gethostname()} has used since 20" in message
    assert re.search(r"since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00\. Let that one end", message)
    # It was killed, and could tidy up nothing.
    assert run_case(f"{CASES}:second", args=(str(tmp_path),)) == "not refused"


def test_a_run_inside_of_a_run_is_refused(tmp_path):
    assert "this very process has used in another `fit`" in run_case(f"{CASES}:inside", args=(str(tmp_path),))


@pytest.mark.parametrize("content", [b"", b"\x1b[31m not ours", b'["\\u001b[31m", {"a": 1}, 5]', b"[[[[", b"[1]"])
def test_a_note_of_somebody_else_does_no_harm(tmp_path, content):
    (tmp_path / "lock").write_bytes(content)
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"
        said = DirectoryLock(tmp_path).take()
        process.kill()
    assert said.isprintable()
    assert said.startswith(("another process has locked", "process "))


def test_a_lock_that_was_lost_is_taken_again(tmp_path):
    lock = DirectoryLock(tmp_path / "run")
    assert lock.take() is None
    # The system takes it back when any part of the process closes the file, as whoever copies the directory does.
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert lock.keep() is None
    assert [is_free(tmp_path / "run"), is_free(tmp_path / "copy")] == [False, True]
    shutil.rmtree(tmp_path / "run")
    assert lock.keep() is None
    assert not is_free(tmp_path / "run")
    lock.release()
    assert is_free(tmp_path / "run")


def test_a_run_that_lost_its_directory_to_another_one_saves_nothing_more(tmp_path, caplog):
    variables = types.SimpleNamespace(check=lambda *_: None)
    directory = RunDirectory(Settings(tmp_path, None, None, 2, 1.0))
    assert directory.begin(variables, {}, None, lambda _: None) is None
    with (tmp_path / "lock").open("r+"):
        pass
    with holding(tmp_path) as process:
        for _ in range(2):
            directory.files.write(Saved({}, []))
            directory.files.wait()
        assert f"Received: '{tmp_path}', which process {process.pid} on host" in caplog.text
    directory.files.write(Saved({}, []))
    directory.files.wait()
    assert caplog.text.count("NOT SAVED") == 3
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    directory.release()


def test_a_directory_that_cannot_be_made_is_no_reason_to_end(tmp_path):
    (tmp_path / "file").touch()
    lock = DirectoryLock(tmp_path / "file" / "run")
    assert lock.take() is None
    lock.release()
