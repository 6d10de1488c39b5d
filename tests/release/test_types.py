"""What a type checker says to somebody who has installed the wheel."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_public_names import MODULES, NAMES

SCRIPT = Path(__file__).with_name("typed_script.py")
WRONG = """
import tfscale

tfscale.Recipes()
tfscale.callbacks.Recover("runs")
tfscale.DataParallel(global_batch="many")
tfscale.Network(bytes_per_packs=1)
tfscale.BatchPlan(global_batch=8).global_batch.upper()
tfscale.resolve_cluster({"RANK": 1})
tfscale.verify("build", "data", num_replicas=2)
"""


@pytest.fixture(scope="module")
def python(built, tmp_path_factory):
    """The interpreter of an environment with the wheel and nothing else."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    _run(sys.executable, "-m", "venv", "--without-pip", environment).check_returncode()
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    _run(*pip, "install", "--quiet", "--no-deps", "--no-index", built[1]).check_returncode()
    return python


def test_script_uses_every_public_name():
    nodes = [node for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.Attribute)]
    used = {ast.unparse(node) for node in nodes}
    names = NAMES | {f"{module}.{name}" for module, public in MODULES.items() for name in public}
    assert {f"tfscale.{name}" for name in names} - used == set()


def test_mypy_takes_what_is_right_and_refuses_what_is_wrong(python, tmp_path):
    # Away from the source, so that the types come from the package, and are seen because it has `py.typed`.
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(SCRIPT.read_text())
    wrong.write_text(WRONG)
    command = ("-m", "mypy", "--strict", "--config-file", os.devnull, "--python-executable", python, right, wrong)
    done = _run(sys.executable, *command, cwd=tmp_path)
    found = re.findall(r"^(\w+)\.py:(\d+): error: (.*)", done.stdout, re.MULTILINE)
    assert [(line, text) for file, line, text in found if file != "wrong"] == []
    assert {int(line) for _, line, _ in found} == set(range(4, 11)), done.stdout + done.stderr


def _run(*command, cwd=None):
    """Runs it where nothing but the environment says what is installed."""
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "MYPYPATH"}}
    return subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
