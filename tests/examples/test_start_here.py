"""The ten minutes of "Start here": its script and its commands, to the letter."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.repository import ROOT

PAGE = (ROOT / "docs" / "index.md").read_text()
[SCRIPT] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```bash\n(.*?)```", PAGE.partition("## Where to go on")[0], re.DOTALL)
    for line in block.splitlines()
]


def run(folder, words):
    """Runs a line of the page with this interpreter."""
    assert words[0] in ("python", "tfscale")
    start = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "tfscale"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    return subprocess.run([*start, *words[1:]], cwd=folder, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_the_page_has_these_commands():
    assert [words[:2] for words in COMMANDS] == [
        ["pip", "install"],
        ["python", "train.py"],
        ["tfscale", "verify"],
        ["tfscale", "launch"],
    ]


def test_four_replicas(folder):
    done = run(folder, COMMANDS[1])
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "4 replicas"), done.stderr


def test_the_proof(folder):
    done = run(folder, COMMANDS[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^tfscale, 2 workers +weights +\S+ +equal ", done.stdout, re.MULTILINE)
    assert re.search(r"^keras, 2 replicas +weights +\S+ +differs ", done.stdout, re.MULTILINE)


def test_two_workers(folder):
    # As the page says: without the line for one machine's replicas.
    lines = [line for line in SCRIPT.splitlines() if "simulate_replicas" not in line]
    assert len(lines) == len(SCRIPT.splitlines()) - 1
    (folder / "train.py").write_text("\n".join(lines))
    done = run(folder, COMMANDS[3])
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line for line in done.stdout.splitlines() if line.endswith("replicas")} == {
        "[0] 2 replicas",
        "[1] 2 replicas",
    }
