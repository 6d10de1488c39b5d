"""Is a picture that cannot be drawn refused before what it is of is made?"""

import sys

import pytest

from tfscale import cli
from tfscale.console.drawing import check_drawing, new_figure
from tfscale.errors import StudyError

SCRIPT = "tests.trials.script:build"


@pytest.fixture
def without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_it_is_there():
    check_drawing("sweep", "sweep", "--no-picture")
    assert new_figure((3, 2)).get_size_inches().tolist() == [3, 2]


def test_refused(without_matplotlib):
    with pytest.raises(StudyError, match=r"(?s)of a sweep needs matplotlib.*\[sweep\].*--no-picture"):
        check_drawing("sweep", "sweep", "--no-picture")


@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        (["sweep", SCRIPT, "--space", "none.json"], "--no-picture"),
        (["study", SCRIPT, SCRIPT, "--target", "loss=1", "--batches", "8,16"], "--no-report"),
    ],
)
def test_nothing_is_tried_before(without_matplotlib, argv, flag, tmp_path, capsys):
    assert cli.main([*argv, "--directory", str(tmp_path / "runs")]) == 2
    assert flag in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
