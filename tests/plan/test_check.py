"""`tfscale plan --check`: finished runs beside what was foretold."""

import json

import pytest

from tfscale import cli
from tfscale.measure import StepMoments, TraceRow, format_trace

TOLD = {"model": "a", "parameters": 100, "optimizer": "SGD", "steps_measured": 20}


def write(folder, name, *, batch, steps, least=0.1, told=TOLD, replicas=1):
    """A run whose loss falls by a constant factor a step, to `least` after so many steps; noise scale 64."""
    path = folder / name
    path.mkdir()
    chosen = [StepMoments(64.0 * (1 + 0.1 * (-1) ** i), 1.0, float(batch), 4) for i in range(2 * steps)]
    rows = [
        TraceRow(i + 1, batch * (i + 1.0), each, least ** ((i + 1) / steps), 0.5 * (i + 1))
        for i, each in enumerate(chosen)
    ]
    (path / "noise.csv").write_text(format_trace(rows))
    (path / "noise.json").write_text(json.dumps({**told, "replicas": replicas}))
    return str(path)


def check(capsys, *argv):
    status = cli.main(["plan", "--check", *argv])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_run_as_the_law_has_it_comes_true_and_one_that_wastes_does_not(tmp_path, capsys):
    # S(B) = S_min (1 + 64 / B): 300 steps at 32, 150 at 128.
    runs = [write(tmp_path, "a", batch=32, steps=300), write(tmp_path, "b", batch=128, steps=150, replicas=4)]
    runs.append(write(tmp_path, "c", batch=128, steps=400, replicas=4))
    status, out, _ = check(capsys, *runs, "--goal", "0.1", "--json")
    found = json.loads(out)
    assert status == 0
    a, b, c = found["runs"]
    # The mean over a twentieth of the shortest run's examples is behind its last step.
    assert a["steps"] == pytest.approx(300, abs=20)
    assert b["steps"] == pytest.approx(150, abs=10)
    assert (a["is_as_foretold"], b["is_as_foretold"], c["is_as_foretold"]) == (None, True, False)
    assert b["foretold_steps"][0] < 150 < b["foretold_steps"][1] < 400
    assert b["seconds"] == pytest.approx(b["steps"] / 2)
    status, out, _ = check(capsys, *runs)
    assert status == 0
    assert out.count("came true") == 1
    assert out.count("did not come true") == 1


def test_a_run_that_does_not_get_there(tmp_path, capsys):
    runs = [write(tmp_path, "a", batch=32, steps=100), write(tmp_path, "b", batch=64, steps=100, least=0.9)]
    status, out, _ = check(capsys, *runs, "--goal", "0.1")
    assert status == 0
    assert "not reached" in out
    status, _, err = check(capsys, *runs[::-1], "--goal", "0.1")
    assert status == 2
    assert "The first run must reach the loss" in err


def test_what_is_refused(tmp_path, capsys):
    good = write(tmp_path, "a", batch=32, steps=100)
    other = write(tmp_path, "b", batch=64, steps=100, told={**TOLD, "model": "another"})
    for argv, message in (
        ((good,), "seen of two runs or more"),
        ((good, other), "Traces must be of one model"),
        ((good, str(tmp_path / "none")), "A trace must be a file that can be read"),
        ((good, good, "--goal", "nan"), "must be a finite number"),
    ):
        status, out, err = check(capsys, *argv)
        assert (status, out) == (2, "")
        assert message in err


def test_a_run_of_which_nothing_tells_the_model(tmp_path, capsys):
    runs = [write(tmp_path, "a", batch=32, steps=100), write(tmp_path, "b", batch=64, steps=100)]
    assert "same model" not in check(capsys, *runs)[1]
    (tmp_path / "b" / "noise.json").unlink()
    assert (
        f"Nothing beside {runs[1] + '/noise.csv'!r} tells whether it is of the same model." in check(capsys, *runs)[1]
    )
    assert [row["is_model_known"] for row in json.loads(check(capsys, *runs, "--json")[1])["runs"]] == [True, False]
