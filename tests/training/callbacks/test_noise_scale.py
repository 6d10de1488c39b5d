"""`NoiseScale`: what it measures is what the tape gives, and the run stays what it is."""

import json

import numpy as np
import pytest

from tests.processes import run_case, run_workers
from tests.training.together import Failure, run_together
from tfscale.measure import read_trace, step_moments

CASES = "tests.training.callbacks.cases_noise"
IN_CALLS = "tests.training.callbacks.cases_noise_calls:in_calls"
# All other forms of a step are in `test_noise_cases.py`.
ON_THREE = ["plain", "own step"]
ON_ONE = ["plain", "local BN"]


@pytest.fixture(scope="module")
def on_three():
    calls = [(f"{CASES}:measured", (form, 3)) for form in ON_THREE]
    return run_together([*calls, (f"{CASES}:gradients_of", ("plain", 3))])


@pytest.fixture(scope="module")
def on_one():
    calls = [(f"{CASES}:measured", (form, 1)) for form in ON_ONE]
    return run_together([*calls, (f"{CASES}:gradients_of", ("plain", 2))])


def result_of(results, name, *args):
    found = results[f"{CASES}:{name}", args]
    assert not isinstance(found, Failure), found
    return found


def assert_same_run(found):
    without, with_it = found["without"], found["with"]
    assert with_it["history"] == without["history"]
    assert with_it["sent"] == without["sent"]
    for own, other in zip(with_it["state"], without["state"], strict=True):
        np.testing.assert_array_equal(own, other)


def assert_measured(rows, expected, *, rel=2e-5):
    """Rows of a trace beside A, q, n and K of each step. What is small beside A is as exact as A."""
    assert len(rows) == len(expected)
    for row, (squares, norm, examples, shards) in zip(rows, expected, strict=True):
        own, right = row.moments, step_moments(squares, norm, examples, shards)
        assert own.shards == shards
        assert own.variance / own.examples == pytest.approx(right.variance / examples, rel=rel, abs=rel * squares)
        assert own.squared_mean == pytest.approx(right.squared_mean, rel=rel, abs=rel * squares)


@pytest.mark.parametrize("form", ON_THREE)
def test_a_run_on_replicas_stays_the_same_to_the_bit(on_three, form):
    assert_same_run(result_of(on_three, "measured", form, 3))


@pytest.mark.parametrize("form", ON_ONE)
def test_a_run_on_one_replica_stays_the_same_to_the_bit(on_one, form):
    assert_same_run(result_of(on_one, "measured", form, 1))


@pytest.mark.parametrize("form", ON_THREE)
def test_replicas_are_shards(on_three, form):
    rows = result_of(on_three, "measured", form, 3)["rows"]
    assert_measured(rows, result_of(on_three, "gradients_of", "plain", 3))
    assert [row.step for row in rows] == list(range(1, 11))
    assert [row.seen for row in rows[-2:]] == [202, 212]
    assert [row.moments.examples for row in rows[3:5]] == [24, 10]


def test_halves_of_one_replica_are_shards(on_one):
    rows = result_of(on_one, "measured", "plain", 1)["rows"]
    assert_measured(rows, result_of(on_one, "gradients_of", "plain", 2))


def test_losses_are_those_of_the_steps(on_three):
    found = result_of(on_three, "measured", "plain", 3)
    rows, logged = found["rows"], found["without"]["history"]["loss"]
    by_epoch = [rows[:5], rows[5:]]
    sizes = [row.moments.examples for row in rows[:5]]
    assert [np.average([row.loss for row in each], weights=sizes) for each in by_epoch] == pytest.approx(logged)


def test_files_and_callbacks_beside_one_another(tmp_path):
    found = run_case(f"{CASES}:resumed", args=(str(tmp_path),))
    went_on = tmp_path / "went_on.csv"
    went_on.write_text(found["went_on"])
    # An epoch has five steps: the second one measures those that one run of ten would have.
    assert [row.step for row in read_trace(went_on)] == [1, 3, 5, 7, 9]
    assert found["yielded"] == 0
    own = found["own"]
    assert len(own["rows"]) == 5
    for row in own["rows"]:
        assert list(row.layers) == ["sequential/dense", "sequential/dense_1"]
        for place, total in enumerate((row.moments.variance, row.moments.squared_mean)):
            assert sum(layer[place] for layer in row.layers.values()) == pytest.approx(total, rel=1e-6, abs=1e-6)
    text = tmp_path / "noise.csv"
    rows, summary = read_trace(text), json.loads(found["summary"])
    # It goes on from what `Recovery` has saved.
    assert (rows[0].step, rows[0].seen) == (21, 236)
    assert summary["steps_measured"] == len(rows)
    assert summary["examples_per_epoch"] == 106
    assert summary["optimizer"] == "SGD"
    assert summary["parameters"] == 65


def test_what_cannot_be_measured_is_refused():
    found = run_case(f"{CASES}:refused")
    assert found["not prepared"].startswith("ModelError: `NoiseScale` needs a prepared model")
    assert 'MeasureError: `every` must be "auto" or a positive integer.\nReceived: every=0.' in found["every"]
    assert "Received: every=True" in found["bool"]
    assert "Received: per_layer=1" in found["layer"]


def test_what_is_measured_is_the_same_to_the_bit_however_many_steps_a_call_takes():
    assert_same_in_calls(run_case(IN_CALLS, args=(2, 900)), 1800)


def test_workers_measure_alike_however_many_steps_a_call_takes():
    # A step costs ten times as much as on replicas of one process. Calls grow to their full size in as few as these.
    first, second = run_workers(IN_CALLS, 2, args=(None, 450))
    assert_same_in_calls(first, 900)
    assert {way: each["rows"] for way, each in second.items()} == {way: each["rows"] for way, each in first.items()}


def assert_same_in_calls(found, steps):
    for one, chosen, rows, most in (("one", "chosen", steps, 256), ("one of 3", "chosen, one of 3", steps // 3, 768)):
        assert found[one]["most"] == 1
        # Calls take as many steps as can be kept, and no more.
        assert 200 < found[chosen]["most"] <= most
        assert found[chosen]["calls"] < 100
        assert len(found[chosen]["rows"]) == rows
        assert found[chosen]["rows"] == found[one]["rows"]
        assert found[chosen]["found"] == found[one]["found"]
    assert found["given"]["most"] == 300
    assert [row[0] for row in found["given"]["rows"]] == list(range(1, steps + 1, 2))
