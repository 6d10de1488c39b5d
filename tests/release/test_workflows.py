"""The public CI runs what exists, on what is supported. It never ran here: nothing but this looks at it."""

import configparser
import re
from pathlib import Path

import pytest
import yaml

from noxfile import PAIRS
from tests.repository import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# The newest Keras for Python 3.10.
KERAS_OF_PYTHON_3_10 = "3.12.*"

every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def _load(path: Path):
    """A workflow; "on" is true to YAML 1.1."""
    loaded = yaml.safe_load(path.read_text())
    return loaded | {"on": loaded.pop(True)}


def _jobs(name):
    return _load(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"]


def _commands(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def test_workflows():
    assert [path.stem for path in WORKFLOWS] == ["canary", "docs", "release", "test"]
    assert _load(ROOT / ".github/workflows/release.yml")["on"] == {"push": {"tags": ["v*"]}}
    assert "schedule" in _load(ROOT / ".github/workflows/canary.yml")["on"]


@every_workflow
def test_form(path):
    loaded = _load(path)
    assert set(loaded) <= {"name", "on", "permissions", "concurrency", "jobs"}
    assert loaded["permissions"] == {"contents": "read"}
    for job in loaded["jobs"].values():
        assert set(job) <= {
            "needs",
            "runs-on",
            "timeout-minutes",
            "strategy",
            "env",
            "environment",
            "permissions",
            "steps",
        }
        assert {job["runs-on"], *job.get("needs", "").split()} <= {"ubuntu-latest", *loaded["jobs"]}
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            assert set(step) <= {"name", "uses", "with", "run"}
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step.get("uses", "a/b@v1"))


@every_workflow
def test_make_targets_exist(path):
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set()
    for job in _load(path)["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        words = [word for command in _commands(job) for word in re.findall(r"\bmake (\S+.*)", command)]
        named |= {each for word in words for each in (matrix["target"] if "matrix.target" in word else word.split())}
    assert named
    assert named - targets == set()


def test_matrix_is_every_python_with_the_oldest_and_the_newest_pair():
    said = configparser.ConfigParser(interpolation=None)
    said.read(ROOT / "setup.cfg")
    pythons = re.findall(r":: (3\.\d+)$", said["metadata"]["classifiers"], re.MULTILINE)
    wanted = {(python, *pair) for python in pythons for pair in (PAIRS[0], PAIRS[-1])}
    wanted = {(python, KERAS_OF_PYTHON_3_10 if python == "3.10" else keras, tf) for python, keras, tf in wanted}
    rows = _jobs("test")["test"]["strategy"]["matrix"]["include"]
    assert sorted((row["python"], row["keras"], row["tensorflow"]) for row in rows) == sorted(wanted)


def test_what_is_published_is_what_was_tried():
    build, publish = (_jobs("release")[name] for name in ("build", "publish"))
    commands = _commands(build)
    version = next(command for command in commands if "setup.cfg" in command)
    assert commands.index(version) < commands.index("make test-release")
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert _commands(publish) == []
