"""Sweeps as a user runs them: what fails is a row, what is killed goes on."""

import csv
import json
import os
import re
import signal
import subprocess
import sys

import pytest

import tfscale
from tests.repository import ROOT
from tfscale import StudyError, cli
from tfscale.cluster.cores import find_cores
from tfscale.launch.cores import divide_cores

SCRIPT = "tests/sweeps/script.py"
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}


def argv(directory, objective, space, *more):
    (directory / "space.json").write_text(space)
    found = [sys.executable, "-m", "tfscale", "sweep", f"{SCRIPT}:{objective}", "--space", f"{directory}/space.json"]
    return [*found, "--directory", str(directory / "s"), *more]


def run(*arguments):
    return subprocess.run(argv(*arguments), env=ENV, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def read(directory):
    with (directory / "s" / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_killed_and_gone_on_with_it_is_the_whole_and_carried_on(tmp_path):
    space, more = '{"rate": {"low": 0.01, "high": 1.0}}', ["--trials", "8", "--at-a-time", "2"]
    more += ["--carry-to", "4", "--batch", "32", "--examples", "1000"]
    command = argv(tmp_path, "objective", space, *more)
    with subprocess.Popen(command, env=ENV, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("trial "):
                break
        process.send_signal(signal.SIGKILL)
        process.stderr.read()
    kept = {path.name: path.read_text() for path in (tmp_path / "s" / "trials").glob("*.json")}
    assert 1 <= len(kept) < 8
    ended = run(tmp_path, "objective", space, *more)
    assert ended.returncode == 0, ended.stderr
    assert all((tmp_path / "s" / "trials" / name).read_text() == text for name, text in kept.items())
    rows = read(tmp_path)
    assert [int(row["number"]) for row in rows] == list(range(8))
    for row in rows:
        assert float(row["value"]) == pytest.approx((float(row["parameter:rate"]) - 0.3) ** 2 + 1)
    best = min(rows, key=lambda row: float(row["value"]))
    assert ended.stdout.startswith(f"best: {float(best['value']):g} of trial {best['number']}: ")
    [line] = [line for line in ended.stdout.splitlines() if line.startswith("learning_rate ")]
    rate = float(best["parameter:rate"])
    assert [float(each) for each in re.split(r"\s{2,}", line)[2:5]] == pytest.approx([rate, rate, 4 * rate], rel=1e-5)
    assert (tmp_path / "s" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    other = run(tmp_path, "objective", space, *more, "--seed", "1")
    assert other.returncode == 2
    assert "A sweep goes on with what it was begun with.\nReceived: seed=1" in other.stderr


def test_what_fails_is_a_row_and_the_others_go_on(tmp_path):
    kinds = '{"x": 3.0, "kind": ["raise", "die", "nan", "wait", "good"]}'
    more = ["--trials", "6", "--seed", "7", "--timeout-s", "15", "--no-picture", "--at-a-time", "6"]
    ended = run(tmp_path, "mixed", kinds, *more)
    assert ended.returncode == 0, ended.stderr
    reasons = {row["parameter:kind"]: (row["state"], row["reason"]) for row in read(tmp_path)}
    assert set(reasons) == {"raise", "die", "nan", "wait", "good"}
    assert reasons["raise"] == ("failed", "RuntimeError: no such kind as 3.0")
    assert reasons["die"][1].startswith("the process ended (7)")
    assert "must return a finite number. Received: nan" in reasons["nan"][1]
    assert reasons["wait"][1].startswith("not ended after 15 s")
    assert reasons["good"] == ("ended", "")
    assert {float(row["value"]) for row in read(tmp_path) if row["state"] == "ended"} == {6.0}
    again = run(tmp_path, "mixed", kinds, *more, "--json")
    facts = json.loads(again.stdout)
    assert (again.returncode, facts["trials"]) == (0, 6)
    states = [row["state"] for row in read(tmp_path)]
    assert facts["states"] == {state: states.count(state) for state in ("ended", "failed", "pruned")}
    assert (facts["best"]["value"], facts["best"]["parameters"]) == (6.0, {"x": 3.0, "kind": "good"})
    assert (facts["csv"], facts["picture"], facts["carried"]) == (str(tmp_path / "s" / "sweep.csv"), None, None)
    # What was there already has no part in the pace.
    assert [line for line in again.stderr.splitlines() if line.startswith("trial") and "about" in line] == []


@pytest.mark.parametrize(("at_a_time", "divides"), [(2, True), (1, False), (len(find_cores()) + 1, False)])
def test_each_trial_has_its_part_of_the_cores_and_its_lines_are_shown(tmp_path, at_a_time, divides):
    more = ["--trials", "11", "--at-a-time", str(at_a_time), "--no-picture", "--show-output"]
    ended = run(tmp_path, "talking", '{"x": {"low": 1, "high": 9}}', *more)
    assert ended.returncode == 0, ended.stderr
    said = re.findall(r"^\[([ \d]\d)\] x=(\S+) of \[(.*)\]$", ended.stderr, re.MULTILINE)
    rows = {int(row["number"]): float(row["parameter:x"]) for row in read(tmp_path)}
    assert {int(number): float(x) for number, x, _ in said} == pytest.approx(rows, rel=1e-5)
    assert [line[4:] for line in ended.stderr.splitlines() if line.endswith(" as bars do")] == [" as bars do"] * 11
    parts = {tuple(map(int, cores.split(", "))) for *_, cores in said}
    if divides and len(find_cores()) > 1:
        assert parts == set(divide_cores(find_cores(), 2))
    else:
        assert parts == {tuple(find_cores())}


def test_what_was_written_before_the_deadline_is_in_the_row(tmp_path):
    more = ["--trials", "1", "--timeout-s", "3", "--no-picture"]
    assert run(tmp_path, "stuck", '{"x": 1}', *more).returncode == 1
    assert read(tmp_path)[0]["reason"] == "not ended after 3 s: epoch 1"


def test_json_has_the_carried_recipe(tmp_path):
    more = ["--trials", "1", "--no-picture", "--carry-to", "4", "--batch", "32", "--examples", "1000", "--json"]
    facts = json.loads(run(tmp_path, "objective", '{"rate": 0.1, "width": 2}', *more).stdout)
    assert facts["best"]["parameters"] == {"rate": 0.1, "width": 2}
    grown = facts["carried"]["grow"]
    assert grown["batch_ratio"] == 4
    assert [knob["new"] for knob in grown["knobs"] if knob["name"] == "learning_rate"] == [pytest.approx(0.4)]
    assert facts["as_they_are"] == ["width"]


def test_futures_and_pruning(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    space = {"x": [float(each) for each in range(10)]}
    with tfscale.sweep(f"{SCRIPT}:reporting", space, trials=10, at_a_time=1, prune=True, directory=tmp_path) as sweep:
        seen = {outcome.number for outcome in sweep}
    rows = sweep.results()
    assert seen == set(range(10)) == {row.number for row in rows}
    assert sweep.best().value == min(row.value for row in rows if row.state == "ended")
    for number, row in enumerate(rows):
        before = sorted(each.parameters["x"] for each in rows[:number])
        middle = (before[(number - 1) // 2] + before[number // 2]) / 2 if number >= 4 else 99.0
        assert (row.state == "pruned") == (row.parameters["x"] > middle)
    again = tfscale.sweep(f"{SCRIPT}:slow", space, trials=2, directory=tmp_path)
    with pytest.raises(StudyError, match="A sweep goes on with what it was begun with"):
        again.results()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--carry-to", "4"], "without --examples and --batch"),
        (["--carry-to", "4", "--optimizer", "fast"], "must be one of keras.optimizers"),
        (["--timeout-s", "-1"], "`timeout_s` must be seconds"),
    ],
)
def test_refused_at_once(more, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert cli.main(argv(tmp_path, "objective", '{"rate": 0.1}', *more)[3:]) == 2
    assert message in capsys.readouterr().err
