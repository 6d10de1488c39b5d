"""The benchmark of studies: what it makes of them, against planted ones, and one small study as it runs it."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.study import report, workloads
from benchmarks.study.__main__ import WORKLOADS
from tests.repository import ROOT
from tfscale.study import Trial, TrialResult, fit, read_results

BATCHES = (8, 32, 128, 512)


def rows(critical, *, batches=BATCHES, bend=0.0):
    """A study whose points are the law's, but for steps that fall more slowly from 500 on, by that power."""
    for batch in batches:
        steps = 20 * (1 + critical / batch) * max(1.0, batch / 500) ** bend
        yield TrialResult(Trial(batch, 0, 0, {"rate": 0.1}), steps, "reached")


def findings(**critical):
    return {each.what: each for each in report.find({name: fit(rows(value)) for name, value in critical.items()})}


def test_findings_that_are_so():
    found = findings(a_sgd=20, a_momentum=60, b_sgd=90, b_momentum=240, b_momentum_again=200)
    assert all(each.is_so for each in found.values())
    assert found["a: momentum's critical batch by SGD's >= 2"].figure == "3.00 (60 by 20)"
    assert found["workloads differ, with momentum, by 2 or more"].figure == "4.00 (a 60, b 240)"
    assert found["b_momentum, other examples: within 1.5"].figure == "1.20 (240 and 200)"
    assert found["three regimes in every study"].figure == "4 of 4"


def test_findings_that_are_missed():
    found = findings(a_sgd=40, a_momentum=60, b_momentum=90, b_momentum_again=200, c_adamw=9000)
    verdicts = {name: each.is_so for name, each in found.items()}
    assert verdicts == {
        "three regimes in every study": False,
        "a: momentum's critical batch by SGD's >= 2": False,
        "b: momentum's critical batch by SGD's >= 2": None,
        "c: momentum's critical batch by SGD's >= 2": None,
        "workloads differ, with momentum, by 2 or more": False,
        "b_momentum, other examples: within 1.5": False,
    }
    assert "not c_adamw" in found["three regimes in every study"].figure


def test_a_number_that_the_batches_do_not_contain_is_not_compared():
    found = findings(a_sgd=2, a_momentum=60, b_momentum=9000)
    verdicts = {name: each.is_so for name, each in found.items()}
    assert verdicts["a: momentum's critical batch by SGD's >= 2"] is None
    assert verdicts["workloads differ, with momentum, by 2 or more"] is None
    studies = {"a": fit(rows(2)), "b": fit(rows(60))}
    bands = {"a": (10, 20.0), "b": (10, 100.0)}
    assert report.of_bands(studies, bands).figure == "1 of 1"
    assert "not told" in report.render(studies, {"a": 8, "b": 8}, bands, {"a": None, "b": None})


def test_examples_foretold():
    batches = (8, 16, 32, 64, 128, 256, 512)
    batch, ratio = report.foretold_examples(rows(120, batches=batches))
    assert (batch, ratio) == (512, pytest.approx(1, rel=0.01))
    # From 500 on the steps are more than the law's, by a known factor; the smaller batches say nothing of it.
    _, bent = report.foretold_examples(rows(120, batches=(*batches, 1024), bend=0.0))
    assert bent == pytest.approx(1, rel=0.01)
    planted = [*rows(120, batches=batches[:-1]), TrialResult(Trial(512, 0, 0), 1.5 * 20 * (1 + 120 / 512), "reached")]
    batch, ratio = report.foretold_examples(planted)
    assert batch == 512
    assert ratio == pytest.approx(1.5, rel=0.1)
    assert report.foretold_examples(rows(400)) is None
    assert report.foretold_examples([]) is None
    assert report.of_examples([(512, 1.5), None]).is_so is False
    assert report.of_examples([(512, 0.8)]).is_so is True
    assert report.of_examples([None]).is_so is None


def test_bands():
    studies = {name: fit(rows(100)) for name in "abcde"}
    bands = dict.fromkeys("abcd", (20, 400.0)) | {"e": (200, None)}
    assert report.of_bands(studies, bands).is_so is True
    bands["d"] = (1, 50.0)
    found = report.of_bands(studies, bands)
    assert (found.figure, found.is_so) == ("3 of 5", False)
    text = report.render(studies, dict.fromkeys("abcde", 8), bands, dict.fromkeys("abcde"))
    assert text.count("MISSED") == 2
    assert text.count("holds it") == 3


def test_examples_to_train_on():
    for data, classes in ((workloads.digits, 10), (workloads.photographs, 2), (workloads.sources, 97)):
        found = data()
        for x, y in ((found["x"], found["y"]), found["validation_data"]):
            assert len(x) == len(y) > 400
            assert math.isfinite(float(np.abs(x).max()))
            assert set(np.unique(y)) <= set(range(classes))
    x, y = workloads.sources()["x"], workloads.sources()["y"]
    assert np.array_equal(x[:, 1:], y[:, :-1])
    assert {each.data for each in WORKLOADS.values()} == {"digits", "photographs", "sources", "other_digits"}
    assert not np.array_equal(workloads.digits()["x"], workloads.other_digits()["x"])


def test_a_study_as_it_runs_it(tmp_path):
    argv = [sys.executable, "-m", "benchmarks.study", "--size", "quick", "--only", "perceptron_momentum"]
    argv += ["--results", str(tmp_path), "--at-a-time", "1"]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode in (0, 1), ended.stderr
    [line] = [line for line in ended.stdout.splitlines() if line.startswith("perceptron_momentum ")]
    found = fit(tmp_path / "quick" / "perceptron_momentum")
    assert f"  {found.b_crit:.0f}  " in line
    assert "holds it" in line or "MISSED" in line
    assert line.split()[1] == str(len(read_results(tmp_path / "quick" / "perceptron_momentum")))
    told = json.loads((tmp_path / "quick" / "findings.json").read_text())
    assert {each["what"] for each in told} >= {
        "three regimes in every study",
        "the band from noise alone holds 8 of 10",
    }
    again = subprocess.run([*argv, "--no-run"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert again.returncode == ended.returncode
    assert ended.stdout.endswith(again.stdout)
