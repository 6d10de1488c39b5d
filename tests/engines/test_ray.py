"""A real Ray on this machine."""

import re
import signal
import sys

import pytest

import tfscale
from tests.engines import jobs
from tests.engines.running import end, run, start, wait_until
from tests.processes import run_case
from tests.repository import ROOT, library_files, module_name
from tests.test_docstrings import examples_of

pytestmark = pytest.mark.slow

# A file in /tmp/ray names the cluster that was started last on this machine, also when it is gone.
RAY = {"RAY_ADDRESS": "local", "RAY_AUTH_MODE": "disabled", "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "1"}
JOBS = ["-m", "tests.engines.ray_jobs"]
# Half of it on cores that are shared with others.
WITHIN_S = 900


@pytest.fixture(scope="module", autouse=True)
def ray_is_there(needs):
    needs("ray")


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    ended = run([*JOBS, "local", str(folder)], timeout_s=WITHIN_S, **RAY)
    assert ended.returncode == 0, ended.stdout[-8000:]
    (folder / "output").write_text(ended.stdout)
    return folder


def test_trials_run_as_tasks_and_what_they_leave_comes_back(tmp_path):
    ended = run([*JOBS, "pool", str(tmp_path)], timeout_s=WITHIN_S, **RAY)
    assert ended.returncode == 0, ended.stdout[-8000:]
    told = jobs.told(tmp_path)["pool"]
    assert told["at a time"] == 2
    assert told["files"] == {f"{name}.json": '{"how": "ends", "threads": 1}' for name in "ad"}
    ends = {name: (succeeded, *statuses) for name, (succeeded, statuses, _) in told["found"].items()}
    assert ends == {"a": (True, 0), "b": (False, 1), "c": (False, -9), "d": (True, 0)}
    assert told["found"]["b"][2] == "begun\nit says why"


def test_too_few_cpus_are_an_error_at_once(local):
    assert jobs.told(local)["too few CPUs"].startswith(
        "Ray must have room for 3 worker(s), 1 CPU each.\nReceived: a Ray of this process with 2 CPU in all"
    )


def test_a_worker_that_is_killed_costs_what_was_not_saved(local, undisturbed):
    found = jobs.read_notes(local / "killed")
    assert [each["rank"] for each in found if each["what"] == "killed"] == [1]
    steps = [each["step"] for each in found if each["what"] == "step" and each["rank"] == 0]
    # Saved at 15 last, killed at 17.
    again = steps[steps.index(15) + 1 :].index(16, 1) + steps.index(15) + 1
    assert steps[again:] == [*range(16, 31)]
    assert jobs.difference(local / "killed", undisturbed) < jobs.CLOSE
    result = jobs.told(local)["killed"]
    assert (result["metrics"]["epoch"], result["metrics"]["steps"], result["has checkpoint"]) == (3, 30, True)


def test_the_worker_that_is_gone_is_named(local):
    """Ray notices as soon as the survivors do, and waits for what they have to say before it ends them."""
    [killed] = [each for each in jobs.read_notes(local / "gone") if each["what"] == "killed"]
    [ends] = jobs.read_notes(local / "gone", "ends")
    assert re.search(r"worker 1 \(\S+:\d+\) is gone: its port refuses", ends["error"])
    assert ends["time_s"] - killed["time_s"] < 15
    # In the output of who has called `fit`, once for each time that Ray has ended workers.
    said = re.findall(r"1 worker\(s\) \(0\) say: All workers must take part", (local / "output").read_text())
    assert len(said) == 2


def test_rays_own_trainer_for_tensorflow_works_with_keras_3(tmp_path, undisturbed):
    ended = run([*JOBS, "tensorflow", str(tmp_path)], timeout_s=WITHIN_S, **RAY)
    assert ended.returncode == 0, ended.stdout[-8000:]
    assert [each["workers"] for each in jobs.read_notes(tmp_path / "tensorflow", "done")] == [2, 2]
    assert jobs.difference(tmp_path / "tensorflow", undisturbed) < jobs.CLOSE


def test_nodes_come_and_go_and_the_weights_are_those_of_a_run_in_peace(tmp_path, undisturbed):
    # Ray counts the node that was killed once more, and waits for it: a minute, unless it is told.
    ended = run(
        [*JOBS, "elastic", str(tmp_path)], timeout_s=WITHIN_S, RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S="20", **RAY
    )
    assert ended.returncode == 0, ended.stdout[-8000:]
    found = jobs.read_notes(tmp_path)
    assert [each["workers"] for each in found if each["what"] == "begins"] == [1, 2, 2, 1]
    # What was announced was saved, between two saves of every 10 steps; it went on there, on the other node.
    asked = [each["step"] for each in found if each["what"] == "saved" and each["step"] % 10]
    assert 14 <= asked[0] < 19
    assert set(asked) == {asked[0]}
    last = [each["time_s"] for each in found if each["what"] == "begins"][-1]
    steps = [each["step"] for each in found if each["what"] == "step" and each["time_s"] > last]
    assert steps == [*range(asked[0] + 1, 31)]
    assert jobs.difference(tmp_path, undisturbed) < jobs.CLOSE
    assert jobs.told(tmp_path)["elastic"]["metrics"]["steps"] == 30


def test_ctrl_c_ends_all_and_another_run_goes_on(tmp_path, undisturbed):
    command = [sys.executable, *JOBS, "waiting", str(tmp_path)]
    process = start(command, **RAY)
    wait_until(lambda: any(each["step"] == 12 for each in jobs.read_notes(tmp_path, "step")), process)
    process.send_signal(signal.SIGINT)
    try:
        output = process.communicate(timeout=120)[0]
    finally:
        end(process)
    assert "Received SIGINT" in output
    steps = len(jobs.read_notes(tmp_path, "step"))
    ended = run([*JOBS, "waiting", str(tmp_path)], **RAY)
    assert ended.returncode == 0, ended.stdout[-8000:]
    assert jobs.read_notes(tmp_path, "step")[steps]["step"] == 11
    assert jobs.difference(tmp_path, undisturbed) < jobs.CLOSE


def test_docstrings():
    found = examples_of(path for path in library_files() if path.parts[1] == "ray")
    assert {name.rpartition(".")[2] for name in found} == set(tfscale.ray.__all__)
    given = [(module_name(path), name, text) for name, (path, text) in found.items()]
    assert set(run_case("tests.test_docstrings:run_examples", args=(given,)).values()) == {""}


@pytest.mark.parametrize(("name", "said"), [("ray_train.py", r"test accuracy 0\.[89]\d+"), ("ray_tune.py", r"best: ")])
def test_examples(name, said, tmp_path):
    ended = run([str(ROOT / "examples" / name), "--output", str(tmp_path)], timeout_s=WITHIN_S, **RAY)
    assert ended.returncode == 0, ended.stdout[-8000:]
    assert re.search(said, ended.stdout), ended.stdout[-8000:]
