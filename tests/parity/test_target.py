import functools
import json
import subprocess
import sys

import pytest

from tests.repository import ROOT
from tfscale import ParityError
from tfscale.parity.target import Target, find_target, load


def build():
    return "built"


def _nested():
    def inner():
        pass

    return inner


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A script with a neighbour, and `sys.path` and `sys.modules` as they were afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    (tmp_path / "neighbour_of_script.py").write_text("value = 3")
    path = tmp_path / "script_of_test.py"
    path.write_text("import neighbour_of_script as n\ndef build(): return n.value\ndata = [1]\n")
    return path


def test_function():
    target = find_target(build, "build")
    assert target == Target(__name__, "build")
    assert str(target) == f"{__name__}:build"
    assert load(target) is build


def test_file_finds_its_neighbours_and_is_imported_once(script):
    target = find_target(f"{script}:build", "build")
    assert str(target) == "script_of_test.py:build"
    assert load(target)() == 3
    assert load(target) is load(target)


def test_file_may_bear_the_name_of_a_loaded_module(script):
    other = script.with_name("json.py")
    script.rename(other)
    assert load(find_target(f"{other}:build", "build"))() == 3
    assert sys.modules["json"] is json


def test_relative_path(script, monkeypatch):
    monkeypatch.chdir(script.parent)
    assert find_target(f"{script.name}:build", "build") == Target(str(script), "build")


def test_function_of_a_script_run_as_main(tmp_path):
    path = tmp_path / "main.py"
    path.write_text(
        "from tfscale.parity.target import find_target\ndef build(): pass\nprint(find_target(build, 'build'))"
    )
    command = [sys.executable, str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert output.stdout == "main.py:build\n"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("train.py", "must be 'module:name' or 'file.py:name'"),
        (":build", "must be 'module:name'"),
        ("train:", "must be 'module:name'"),
        ("train:a.b", "must be 'module:name'"),
        ("no/such/file.py:build", "but there is no file"),
        (lambda: None, "must be a function at the top level"),
        (_nested(), "must be a function at the top level"),
        (functools.partial(build), "must be a function at the top level"),
        (3, "Received: 3."),
        (None, "Received: None."),
    ],
)
def test_refused(given, shown):
    with pytest.raises(ParityError, match=r"^`build` ") as error:
        find_target(given, "build")
    assert shown in str(error.value)
    assert "\nReceived: " in str(error.value)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("biuld", "Did you mean build?"),
        ("zzz", "Received: 'zzz', which it has not. Define it"),
        ("data", "Received: [1]."),
    ],
)
def test_no_such_function(script, name, shown):
    with pytest.raises(ParityError) as error:
        load(Target(str(script), name))
    assert f"must define a function `{name}`" in str(error.value)
    assert shown in str(error.value)


@pytest.mark.parametrize("module", ["no_such_module", "tests.no_such_module", "no_such.module"])
def test_no_such_module(module):
    with pytest.raises(ParityError, match=f"must be a module `{module}`"):
        load(Target(module, "build"))


def test_module_that_a_script_misses_is_the_scripts_error(script):
    script.write_text("import no_such_module")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        load(Target(str(script), "build"))
