"""With what a study may go on in its directory, and what is refused by name."""

import dataclasses
import importlib
import json
import sys

import pytest

from tfscale import StudyError
from tfscale.parity.target import Target, load
from tfscale.study import Trial, TrialResult
from tfscale.study.goal import parse_goal
from tfscale.study.result import write_result
from tfscale.study.schedule import Parameter, Settings
from tfscale.trials.continuing import go_on, known_reference_batch
from tfscale.trials.experiment import Experiment
from tfscale.trials.script_source import source_digest

SCRIPT = '''"""A script."""
import math as m
from os import path

WIDTH = 64
OTHER = 3


def helper(rate):
    """Helps."""
    return m.sqrt(rate * WIDTH)


def build(rate=0.1):
    return helper(rate)


def data():
    return [OTHER]


def unused():
    return 3


if __name__ == "__main__":
    print(build())
'''
SETTINGS = Settings((16, 64, 256), 8, 2, (Parameter("rate", 0.1, "rate"),), 64, "sqrt", 1000)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def experiment(script):
    build, data = (Target(str(script), name) for name in ("build", "data"))
    return Experiment(build, data, parse_goal("loss=0.5"), 50_000)


def begin(directory, experiment, settings=SETTINGS):
    go_on(directory, experiment, settings)
    (directory / "trials").mkdir()
    write_result(directory / "trials", TrialResult(Trial(16, 0, 0, {"rate": 0.1}), 9.0, "reached"))


def test_more_of_all_goes_on(tmp_path, experiment):
    directory = tmp_path / "study"
    begin(directory, experiment)
    more = dataclasses.replace(SETTINGS, batches=(64, 256, 512), trials=12, seeds=3)
    found = go_on(directory, dataclasses.replace(experiment, budget_examples=60_000), more)
    assert (found.batches, found.trials, found.seeds, found.first_trials) == ((16, 64, 256, 512), 12, 3, 8)
    again = go_on(directory, dataclasses.replace(experiment, budget_examples=60_000), found)
    assert again == found
    assert known_reference_batch(directory) == 64


def test_a_directory_in_which_no_trial_has_ended_is_nobodys(tmp_path, experiment):
    directory = tmp_path / "study"
    go_on(directory, experiment, SETTINGS)
    assert known_reference_batch(directory) is None
    other = dataclasses.replace(experiment, goal=parse_goal("loss=0.4"))
    begin(directory, other, dataclasses.replace(SETTINGS, trials=4, reference_batch=16))
    assert known_reference_batch(directory) == 16
    assert json.loads((directory / "study.json").read_text())["experiment"]["goal"]["value"] == 0.4


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"goal": parse_goal("loss=0.4")}, "begun with.\nReceived: goal=loss <= 0.4, and in .* it is loss <= 0.5"),
        ({"build": "helper"}, "Received: build=.*train.py:helper, and in .* it is .*train.py:build"),
        ({"data": "unused"}, "Received: data=.*train.py:unused, and in"),
        ({"micro_batch": 8}, "Received: micro_batch=8, and in .* it is null"),
        ({"budget_examples": 40_000}, "with more.\nReceived: budget_examples=40000, and in .* it is 50000. Give a lar"),
        ({"most_batch": 900}, "Received: num_examples=900, and in .* it is 1000"),
        ({"rule": "linear"}, 'Received: rule="linear", and in'),
        ({"reference_batch": 16}, "Received: reference_batch=16, and in .* it is 64"),
        ({"parameters": (Parameter("rate", 0.2, "rate"),)}, "Received: parameters="),
        ({"trials": 7}, "with more.\nReceived: trials=7, and in .* it is 8. Give a larger --trials"),
        ({"seeds": 1}, "Received: seeds=1, and in .* it is 2. Give a larger --seeds"),
    ],
)
def test_another_study_is_refused_by_name(tmp_path, experiment, changed, message):
    directory = tmp_path / "study"
    begin(directory, experiment)
    before = (directory / "study.json").read_text()
    fields = {each.name for each in dataclasses.fields(Experiment)}
    own = {name: value for name, value in changed.items() if name in fields}
    own |= {name: Target(experiment.build.where, own[name]) for name in ("build", "data") if name in own}
    rest = {name: value for name, value in changed.items() if name not in fields}
    with pytest.raises(StudyError, match=message):
        go_on(directory, dataclasses.replace(experiment, **own), dataclasses.replace(SETTINGS, **rest))
    assert (directory / "study.json").read_text() == before


def test_a_changed_source_is_refused_by_name(tmp_path, experiment):
    directory = tmp_path / "study"
    begin(directory, experiment)
    note = json.loads((directory / "study.json").read_text())
    note["sources"]["data"] = "another"
    (directory / "study.json").write_text(json.dumps(note))
    with pytest.raises(StudyError, match=r"Received: `data`, .*train\.py:data, whose source has changed since"):
        go_on(directory, experiment, SETTINGS)
    # A study of an earlier version knows no sources.
    del note["sources"], note["first_trials"]
    (directory / "study.json").write_text(json.dumps(note))
    assert go_on(directory, experiment, SETTINGS).first_trials == 8


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"batches": [1], "trials": 1, "seeds": 1}'])
def test_a_note_that_is_none(tmp_path, experiment, content):
    directory = tmp_path / "study"
    begin(directory, experiment)
    (directory / "study.json").unlink()
    if content is not None:
        (directory / "study.json").write_text(content)
    with pytest.raises(StudyError, match=r"must have a study\.json that can be read"):
        go_on(directory, experiment, SETTINGS)


@pytest.mark.parametrize(
    ("before", "after", "is_changed"),
    [
        ("rate * WIDTH", "rate + WIDTH", True),
        ("WIDTH = 64", "WIDTH = 65", True),
        ("import math as m", "import cmath as m", True),
        ("OTHER = 3\n", "OTHER = 3\nWIDTH += 1\n", True),
        ("rate=0.1", "rate=0.2", True),
        ("OTHER = 3", "OTHER = 4", False),
        ("return 3", "return 4", False),
        ("Helps.", "Helps a lot.", False),
        ("A script.", "The script.", False),
        ("print(build())", "print(build(3))", False),
        ("return helper(rate)", "# As it is.\n    return (helper(  rate))", False),
    ],
)
def test_what_a_function_uses_is_its_source(tmp_path, before, after, is_changed):
    assert before in SCRIPT
    digests = []
    for name, text in (("first", SCRIPT), ("second", SCRIPT.replace(before, after))):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        namespace = {"__name__": name}
        exec(compile(text, str(path), "exec"), namespace)
        digests.append(source_digest(namespace["build"]))
    assert None not in digests
    assert (digests[0] != digests[1]) is is_changed


def test_what_has_no_source():
    assert source_digest(len) is None


IMPORTING = """import numpy
from parts.layers import width


def build(rate=0.1):
    import late
    return width() * late.DEPTH


def data():
    return 3
"""
FILES = {
    "parts/__init__.py": "from . import layers",
    "parts/layers.py": "from .deeper import WIDTH\n\n\ndef width():\n    return WIDTH",
    "parts/deeper.py": "WIDTH = 3",
    "parts/unused.py": "UNUSED = 3",
    "late.py": "DEPTH = 2",
}


@pytest.mark.parametrize(
    ("changed", "is_another"),
    [
        ("parts/__init__.py", True),
        ("parts/layers.py", True),
        ("parts/deeper.py", True),
        ("late.py", True),
        ("parts/unused.py", False),
    ],
)
@pytest.mark.parametrize("is_loaded", [True, False])
def test_files_beside_the_script_belong_to_it(tmp_path, monkeypatch, changed, is_another, is_loaded):
    (tmp_path / "parts").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "importing.py").write_text(IMPORTING)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("parts", "parts.layers", "parts.deeper", "late"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if is_loaded:
        importlib.import_module("late")
    function = load(Target(str(tmp_path / "importing.py"), "build"))
    before = source_digest(function)
    (tmp_path / changed).write_text(f"# A comment.\n{FILES[changed]}")
    assert source_digest(function) == before
    (tmp_path / changed).write_text(f"{FILES[changed]}\nMORE = 1")
    assert (source_digest(function) != before) == is_another
    for name in ("parts", "parts.layers", "parts.deeper", "late"):
        sys.modules.pop(name, None)
