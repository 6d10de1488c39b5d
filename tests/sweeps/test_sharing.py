"""Several hosts run one sweep: here two processes at once, of which one is killed."""

import json
import os
import signal
import subprocess
import time

import pytest

from tests.repository import ROOT
from tests.sweeps.test_sweeping import ENV, argv, read
from tfscale import StudyError
from tfscale.sweeps.outcome import Outcome, write_outcome
from tfscale.sweeps.sampling import make_sampler
from tfscale.sweeps.space import parse_space
from tfscale.trials.identity import check_identity
from tfscale.trials.sharing import lock

SPACE = '{"x": {"low": 0.0, "high": 1.0}}'
SHARED = ["--sampler", "optuna", "--shared", "--at-a-time", "1", "--no-picture"]


@pytest.fixture
def marks(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


def start(directory, marks, objective, *more):
    command = argv(directory, objective, SPACE, *SHARED, *more)
    env = {**ENV, "MARKS": str(marks)}
    return subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_hosts_at_once_run_each_trial_once(tmp_path, marks):
    hosts = [start(tmp_path, marks, "together", "--trials", "6") for _ in range(2)]
    ended = [host.communicate(timeout=200) for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], ended
    rows = read(tmp_path)
    assert [(int(row["number"]), row["state"]) for row in rows] == [(number, "ended") for number in range(6)]
    assert sorted(int(name.partition("-")[0]) for name in os.listdir(marks)) == list(range(6))
    assert len({row["parameter:x"] for row in rows}) == 6
    holders = {(tmp_path / "s" / "claims" / f"{number:06d}").read_text() for number in range(6)}
    assert len(holders) == 2
    # Both tell of the same best, and have seen all rows.
    assert len({out for out, _ in ended}) == 1
    assert all(err.count("\ntrial ") + err.startswith("trial ") == 6 for _, err in ended)
    # Two hosts may write the same end of a trial; the study counts it once.
    shared = make_sampler(
        "optuna", parse_space(json.loads(SPACE)), seed=0, direction="min", journal=tmp_path / "s" / "journal.log"
    )
    told = {each.user_attrs["number"]: each for each in shared._study.get_trials()}
    assert len(shared._study.get_trials()) == 6
    assert [(told[n].state.name, told[n].value) for n in range(6)] == [("COMPLETE", float(r["value"])) for r in rows]


def test_the_trial_of_a_host_that_died_is_run_again(tmp_path, marks):
    first = start(tmp_path, marks, "once_stuck", "--trials", "3", "--silent-s", "3")
    deadline_s = time.monotonic() + 120
    while not (marks / "begun").exists():
        assert time.monotonic() < deadline_s
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    second = start(tmp_path, marks, "once_stuck", "--trials", "3", "--silent-s", "3")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    out, err = second.communicate(timeout=200)
    assert second.returncode == 0, err
    assert [(row["number"], row["state"]) for row in read(tmp_path)] == [(str(n), "ended") for n in range(3)]
    assert out.startswith("best: ")
    assert len(list((tmp_path / "s" / "claims").glob("000000.lost.*"))) == 1


def test_one_host_alone_is_refused_beside_those_that_share(tmp_path):
    for is_shared, message in ((True, "or --shared on each host that takes part"), (False, "is run by one process")):
        held = lock(tmp_path, "sweep", "--shared", is_shared=is_shared)
        with held, pytest.raises(StudyError, match=message):
            lock(tmp_path, "sweep", "--shared", is_shared=not is_shared)
    with lock(tmp_path, "sweep", "--shared", is_shared=True), lock(tmp_path, "sweep", "--shared", is_shared=True):
        pass


def test_two_samplers_on_one_journal(tmp_path):
    space = parse_space(json.loads(SPACE))
    first, second = (
        make_sampler("optuna", space, seed=0, direction="min", journal=tmp_path / "journal.log") for _ in range(2)
    )
    asked = {0: first.ask(0), 1: second.ask(1)}
    assert asked[0] != asked[1]
    rows = {number: Outcome(number, each, "ended", each["x"]) for number, each in asked.items()}
    first.tell(rows[0])
    # Each sees the other's row, in any order, and what was told already stays.
    for sampler in (second, first):
        for row in rows.values():
            sampler.tell(row)
    # The host that asked is gone: another one runs the trial with other settings.
    first.ask(2)
    again = Outcome(2, second.ask(2), "ended", 0.5)
    second.tell(again)
    second.tell(again)
    trials = second._study.get_trials()
    assert [each.state.name for each in trials] == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE"]
    assert [each.value for each in trials] == [asked[0]["x"], asked[1]["x"], None, 0.5]


def test_who_comes_second_compares(tmp_path):
    check_identity("sweep", tmp_path, {"seed": 1})
    check_identity("sweep", tmp_path, {"seed": 1})
    with pytest.raises(StudyError, match="seed=2, and in"):
        check_identity("sweep", tmp_path, {"seed": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.json"]


def test_a_hopeless_row_can_be_read(tmp_path):
    write_outcome(tmp_path, Outcome(0, {}, "failed", None, "each host that ran it was gone before it ended"))
    space = parse_space(json.loads(SPACE))
    sampler = make_sampler("optuna", space, seed=0, direction="min", journal=tmp_path / "journal.log")
    sampler.tell(Outcome(0, {}, "failed"))
    assert sampler._study.get_trials() == []
