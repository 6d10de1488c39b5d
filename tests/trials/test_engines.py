"""Several hosts run one study: here two processes at once, of which one is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.repository import ROOT
from tests.trials.test_studying import SMALL
from tfscale import StudyError
from tfscale.parity.processes import Ending
from tfscale.study import read_results
from tfscale.study.goal import parse_goal
from tfscale.study.result import Trial, TrialResult
from tfscale.trials import engines, shared_runner
from tfscale.trials.optuna_journal import OptunaJournal
from tfscale.trials.shared_runner import SharedRunner
from tfscale.trials.sharing import LOST, Claims

SCRIPT = "tests/trials/digits.py"
GOAL = parse_goal("loss=0.5")
SHARED = ["--engine", "optuna", "--silent-s", "5", "--trials", "2", "--no-report"]


def start(directory, *more):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    argv = [sys.executable, "-m", "tfscale", "study", f"{SCRIPT}:build", f"{SCRIPT}:data", *SMALL]
    argv += ["--directory", str(directory), *more]
    return subprocess.Popen(argv, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def trials_in_journal(directory):
    journal = OptunaJournal(directory / "journal.log", str(GOAL))
    return journal._study.get_trials()


def test_two_hosts_run_each_trial_once_and_one_may_be_killed(tmp_path):
    first = start(tmp_path, *SHARED)
    folder = tmp_path / "trials"
    deadline_s = time.monotonic() + 120
    while not any(folder.glob("*.json")):
        assert time.monotonic() < deadline_s
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    second = start(tmp_path, *SHARED)
    claims = tmp_path / "shared"
    while len({each.read_text() for each in claims.glob("*/claims/[0-9b]*") if "lost" not in each.name}) < 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    alone = start(tmp_path, "--trials", "2")
    _, err = alone.communicate(timeout=120)
    assert "--engine optuna on each host that takes part in one" in err
    first.send_signal(signal.SIGKILL)
    first.communicate()
    out, err = second.communicate(timeout=240)
    assert second.returncode in (0, 1), err
    assert "trials in" in out
    rows = read_results(tmp_path)
    ran = {each.trial.name for each in rows}
    assert {each.trial.batch for each in rows} >= {32, 128, 512}
    assert len(ran) == len(rows) >= 6
    told = trials_in_journal(tmp_path)
    assert len(told) == len(rows)
    values = {each.user_attrs["name"].partition(" of ")[0]: each.value for each in told}
    assert values == {each.trial.name: each.steps if each.steps < 1e9 else None for each in rows}


def test_what_others_have_run_or_were_lost_with_is_told_too(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_runner, "_LOOK_S", 0.0)
    done, told = {"b"}, []

    class OnePool:
        at_a_time = 1

        def run(self, requests):
            for name, make in requests:
                make()
                done.add(name)
                yield name, Ending(False, (0,)), "log"

    with Claims(tmp_path, 60.0, done.__contains__) as claims:
        monkeypatch.setattr(claims, "release_lost", lambda names: [name for name in names if name == "c"])
        shared = SharedRunner(OnePool(), claims, done.__contains__, lambda: told.append(len(done)))
        began = []
        found = list(shared.run([(name, lambda name=name: began.append(name)) for name in "abcd"]))
    assert found[0] == ("c", Ending(False, (1,)), LOST)
    assert sorted(name for name, _, _ in found) == list("abcd")
    assert began == ["a", "d"]
    assert [log for name, _, log in found if name == "b"] == [""]
    assert told[-1] == 3


def test_a_trial_is_shown_in_optuna_once(tmp_path):
    reached = TrialResult(Trial(32, 0, 1, {"rate": 0.1, "momentum": 0.0}), 40.5, "reached", evaluations=((10, 2.0),))
    behind = TrialResult(Trial(32, 1, 0, {"rate": 0.2, "momentum": 0.0}), float("inf"), "behind")
    for _ in range(2):
        OptunaJournal(tmp_path / "journal.log", str(GOAL)).add([reached, behind])
    first, second = trials_in_journal(tmp_path)
    assert (first.state.name, first.value, first.intermediate_values) == ("COMPLETE", 40.5, {10: 2.0})
    assert first.params == {"batch": 32.0, "rate": 0.1, "momentum": 0.0}
    assert (second.state.name, second.user_attrs["reason"]) == ("FAIL", "behind")


@pytest.mark.parametrize("engine", ["optuna", "ray"])
def test_an_engine_that_is_not_installed_is_named(engine, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda name: None)

    class Asked:
        budget_examples, goal = 10, GOAL

    chosen = engines.engine_of(engine, None, tmp_path, Asked(), at_a_time=None, silent_s=1.0)
    with pytest.raises(StudyError, match=f"The engine '{engine}' needs .*\nReceived: it is not installed"), chosen:
        pass
