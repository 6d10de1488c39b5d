"""`tfscale measure` tells the noise scale of a script."""

import json
from pathlib import Path

import pytest

from tests.training.together import Failure, run_together
from tfscale.measure import read_trace

CASES = "tests.trials.cases_measuring:command"


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("measured") / "noise.csv")
    calls = {
        "arrays": ("build", "data", "--steps", "200", "--global-batch", "32", "--output", path, "--json"),
        "dataset": ("build", "dataset", "--steps", "40", "--output", f"{path}.2", "--per-layer"),
        "few": ("build", "data", "--steps", "10", "--output", f"{path}.3"),
        "half made": ("half_made", "data", "--output", f"{path}.4"),
        "own step": ("with_own_step", "data", "--output", f"{path}.5"),
        "one example": ("build", "data", "--global-batch", "1", "--output", f"{path}.6"),
        "no such function": ("built", "data", "--output", f"{path}.7"),
    }
    results = run_together([(CASES, call) for call in calls.values()])
    answers = {name: results[CASES, call] for name, call in calls.items()}
    assert not any(isinstance(each, Failure) for each in answers.values()), answers
    return {**answers, "path": path}


def test_it_is_what_the_examples_say(answers):
    status, text, _ = answers["arrays"]
    found, rows = json.loads(text), read_trace(answers["path"])
    assert status == 0
    assert found["steps_measured"] == len(rows) == 200
    assert {(row.moments.shards, row.moments.examples) for row in rows} == {(4, 32)}
    beside = json.loads(Path(answers["path"]).with_suffix(".json").read_text())
    assert set(beside["step_times"]) == {"8", "16", "32", "64"}
    assert all(seconds > 0 for seconds in beside["step_times"].values())
    assert (beside["trainable_parameters"], beside["device"]) == (6, "CPU")
    assert beside["examples_per_epoch"] == 512
    low, high = found["interval"]
    assert low < found["noise_scale"] < high


def test_what_is_printed(answers):
    status, text, _ = answers["dataset"]
    assert status in (0, 1)
    assert text.startswith("noise scale: ")
    assert "  sequential" in text
    status, text, _ = answers["few"]
    assert status == 1
    assert text.startswith("10 steps could be measured: 20 are needed")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("half made", "must return a compiled Keras model.\nReceived: Sequential."),
        ("own step", "Received: a `train_step` of one's own on one replica."),
        ("one example", "Received: a batch of one example."),
        ("no such function", "must define a function `built`"),
    ],
)
def test_what_cannot_be_measured(answers, name, message):
    status, _, errors = answers[name]
    assert status == 2
    assert message in errors
