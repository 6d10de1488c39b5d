"""A small study of digits: run, killed five times and gone on with, fitted, reported."""

import fcntl
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.repository import ROOT
from tfscale import StudyError
from tfscale.study import fit, read_results
from tfscale.study.goal import parse_goal, steps_to_goal
from tfscale.study.result import read_result

SCRIPT = "tests/trials/digits.py"
SMALL = ["--target", "loss=0.5", "--batches", "32,128,512", "--seeds", "1", "--reference-batch", "64"]
SMALL += ["--budget-epochs", "20", "--at-a-time", "1"]


def command(directory, *more, build="build", trials=3):
    argv = [sys.executable, "-m", "tfscale", "study", f"{SCRIPT}:{build}", f"{SCRIPT}:data", *SMALL]
    return [*argv, "--trials", str(trials), "--directory", str(directory), *more]


def run(directory, *more, **changed):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    argv = command(directory, *more, **changed)
    return subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


# After how many trials of its own each start is killed, and how many seconds later: between trials, and within.
KILLS = [(1, 0.0), (0, 2.5), (1, 0.4), (2, 0.1), (1, 0.8)]


def start_and_kill(directory, trials, later_s):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with subprocess.Popen(
        command(directory), env=env, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        seen = 0
        while seen < trials:
            line = process.stderr.readline()
            assert line, "it has ended before it was killed"
            seen += line.startswith("batch ")
        time.sleep(later_s)
        assert process.poll() is None, "it has ended before it was killed"
        process.send_signal(signal.SIGKILL)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """A study that is killed five times, and gone on with."""
    directory = tmp_path_factory.mktemp("study")
    for trials, later_s in KILLS:
        start_and_kill(directory, trials, later_s)
    kept = {path.name: path.read_text() for path in (directory / "trials").glob("*.json")}
    return directory, kept, run(directory)


def test_killed_five_times_its_table_is_that_of_one_never_killed(studied, tmp_path):
    ended = run(tmp_path, "--no-report")
    assert ended.returncode in (0, 1), ended.stderr

    def table(directory):
        return sorted((each.trial.name, each.reason, each.steps) for each in read_results(directory))

    assert table(studied[0]) == table(tmp_path)


def test_it_goes_on_where_it_was_killed(studied):
    directory, kept, ended = studied
    assert ended.returncode in (0, 1), ended.stderr
    assert 5 <= len(kept) < 9
    for name, content in kept.items():
        if '"commit": ""' not in content:  # the last one may be a result that the parent had not read yet
            assert (directory / "trials" / name).read_text() == content
    results = read_results(directory)
    assert len(results) % 3 == 0
    assert len({each.trial.name for each in results}) == len(results) >= 9
    assert f"{len(results) - len(kept)}" <= str(ended.stderr.count("batch "))


def test_each_trial_says_of_which_model_it_is(studied):
    models = [read_result(path).model for path in (studied[0] / "trials").glob("*.json")]
    assert all(each == models[0] for each in models)
    assert (models[0]["parameters"], models[0]["optimizer"], models[0]["momentum"]) == (8970, "SGD", 0.9)


def test_steps_fall_with_the_batch(studied):
    found = fit(studied[0])
    best = [found.best[batch] for batch in sorted(found.best)]
    # Of one seed, large batches are alike.
    assert all(after < 1.2 * before for before, after in itertools.pairwise(best))
    assert best[-1] < best[0] / 2
    assert found.b_crit > 8


def test_the_report_needs_nothing_else(studied):
    directory, _, ended = studied
    page = (directory / "study.html").read_text()
    assert "critical batch: " in page
    assert "data:image/png;base64," in page
    assert "http" not in page
    assert "Not tried: " in page
    assert (directory / "study.png").read_bytes().startswith(b"\x89PNG")
    assert ended.stdout.startswith("critical batch: ")


def test_a_directory_of_another_study_is_refused(studied):
    ended = run(studied[0], "--target", "loss=0.4")
    assert ended.returncode == 2
    assert "A study goes on with what it was begun with.\nReceived: goal=loss <= 0.4, and in" in ended.stderr


def test_a_study_that_has_ended_goes_on_with_more_batches_and_trials(studied, tmp_path):
    directory = tmp_path / "study"
    shutil.copytree(studied[0], directory)
    before = {path.name: path.read_text() for path in (directory / "trials").glob("*.json")}
    batches = {each.trial.batch for each in read_results(directory)} | {1024}
    ended = run(directory, "--batches", "32,128,512,1024", "--no-report", trials=4)
    assert ended.returncode in (0, 1), ended.stderr
    assert {name: (directory / "trials" / name).read_text() for name in before} == before
    points = {batch: set() for batch in batches}
    for each in read_results(directory):
        points[each.trial.batch].add(each.trial.point)
    assert {len(each) % 4 for each in points.values()} == {0}
    assert len(set(map(frozenset, points.values()))) == 1


def test_a_directory_that_another_process_has_is_refused(tmp_path):
    with (tmp_path / "lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        json.dump(["here", 5, "noon"], file)
        file.flush()
        ended = run(tmp_path)
    assert ended.returncode == 2
    assert "A study is run by one process at a time.\nReceived: " in ended.stderr
    assert "which process 5 on host here has used since noon. Wait for" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_what_the_hours_left_out_is_said(tmp_path):
    ended = run(tmp_path, "--budget-hours", "1e-9")
    assert ended.returncode == 2
    assert "9 trials of this round were not run, at batches 32, 128, 512: the hours were over." in ended.stderr


def test_a_trial_that_fails_is_a_row(tmp_path):
    ended = run(tmp_path, "--no-report", "--budget-epochs", "6", build="failing", trials=2)
    assert ended.returncode in (0, 1, 2), ended.stderr
    reasons = {each.reason for each in read_results(tmp_path)}
    assert "RuntimeError: no such rate" in reasons
    assert "reached" in reasons
    assert not Path(tmp_path, "study.png").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target", "accuracy"], "A target must be as"),
        (["--search", "speed"], "must take 'speed', with the recipe's value as its default.\nReceived: rate, momentum"),
        (["--batches", "32,9999,128"], "from 1 to the 1297 examples that there are"),
    ],
)
def test_what_is_refused_at_once(tmp_path, more, message):
    ended = run(tmp_path, *more)
    assert ended.returncode == 2
    assert message in ended.stderr


@pytest.mark.parametrize(
    ("more", "build", "message"),
    [
        (
            ["--target", "val_accurcy=0.9"],
            "build",
            "must be one of the metrics of the model.\nReceived: 'val_accurcy'; there are val_accuracy, val_loss.",
        ),
        (["--target", "accurcy=0.9"], "build", "Received: 'accurcy'; there are accuracy, loss."),
        ([], "broken", "RuntimeError: no model (with rate=0.1 at batch 64)"),
    ],
)
def test_what_is_refused_before_anything_is_trained(tmp_path, more, build, message):
    ended = run(tmp_path, *more, build=build)
    assert ended.returncode == 2, ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not list(tmp_path.glob("trials/*"))


@pytest.mark.parametrize("text", ["", "loss", "loss=", "loss=nan", "loss=1e", "=3"])
def test_goals_that_are_none(text):
    with pytest.raises(StudyError, match="A target must be as"):
        parse_goal(text)


def test_a_goal_is_reached_twice_in_a_row():
    goal = parse_goal("val_accuracy=0.9")
    assert steps_to_goal([(1, 0.5), (2, 0.95), (3, 0.8), (4, 0.85), (5, 0.9), (6, 0.91)], goal) == 5
    assert steps_to_goal([(1, 0.95), (2, 0.95)], goal) == 1
    assert steps_to_goal([(1, 0.5), (2, 0.95)], goal) is None
