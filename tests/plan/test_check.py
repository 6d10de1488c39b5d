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


def test_seconds_are_foretold_beside_those_that_came_true(tmp_path, capsys):
    told = {**TOLD, "device": "GPU", "step_times": {str(b): 0.1 + 0.01 * b for b in (8, 16, 32, 64)}}
    runs = [write(tmp_path, "a", batch=32, steps=300, told=told), write(tmp_path, "b", batch=64, steps=225)]
    runs.append(write(tmp_path, "c", batch=128, steps=150, replicas=4))
    status, out, err = check(capsys, *runs, "--goal", "0.1", "--json")
    assert status == 0, err
    found = json.loads(out)
    first, alone, four = found["runs"]
    # Of the steps that are foretold, each at 0.1 s and 0.01 s an example.
    assert alone["foretold_seconds"] == pytest.approx([0.74 * each for each in alone["foretold_steps"]])
    assert (first["foretold_seconds"], four["foretold_seconds"]) == (None, None)
    assert "no seconds of several replicas are foretold: give --link" in found["assumptions"]
    link = ("--link", "1gbit", "--latency", "10ms", "--parameters", "1000000")
    four = json.loads(check(capsys, *runs, "--goal", "0.1", *link, "--json")[1])["runs"][2]
    # 4 MB over a ring of four, of which the packs hide two thirds of the computing.
    waiting = max(0.0, 3 * 0.01 + 4e6 * 1.5 / 125e6 - 2 / 3 * 0.42)
    assert four["foretold_seconds"] == pytest.approx([(0.42 + waiting) * each for each in four["foretold_steps"]])
    status, out, _ = check(capsys, *runs, "--goal", "0.1", *link)
    low, high = four["foretold_seconds"]
    assert f"  {low:.3g} to {high:.3g}  " in out
    assert "Link 1gbit, latency 10000 us: assumed, a ring." in out


def test_cautions_of_the_first_run_are_told(tmp_path, capsys):
    told = {**TOLD, "approximate": ["so"], "clipped_share": 0.5}
    runs = [write(tmp_path, "a", batch=32, steps=100, told=told), write(tmp_path, "b", batch=64, steps=100)]
    out = check(capsys, *runs)[1]
    assert "Caution: the noise is measured approximately: so." in out
    assert len(json.loads(check(capsys, *runs, "--json")[1])["cautions"]) == 2


def test_what_is_refused(tmp_path, capsys):
    good = write(tmp_path, "a", batch=32, steps=100)
    other = write(tmp_path, "b", batch=64, steps=100, told={**TOLD, "model": "another"})
    for argv, message in (
        ((good,), "seen of two runs or more"),
        ((good, other), "Traces must be of one model"),
        ((good, str(tmp_path / "none")), "A trace must be a file that can be read"),
        ((good, good, "--goal", "nan"), "must be a finite number"),
        ((good, good, "--link", "fast"), "A link must be a rate"),
        ((good, good, "--replicas", "2", "--rule", "sqrt"), "Received: --replicas, --rule with --check. Leave out"),
        ((good, good, "--noise", "x", "--study", "y"), "Received: --noise, --study with --check"),
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
