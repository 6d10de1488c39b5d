"""A run that is continued, beside one in one go: weights, optimizer, history and counters are the same."""

import math
import re

import numpy as np
import pytest

from tests.processes import run_case
from tests.recovery.cases_resume import RECIPES
from tests.training.together import Failure, run_together

CASES = "tests.recovery.cases_resume"
NUM_REPLICAS = 2
# Their data have no order that could be had again: they go on from the last epoch that was complete.
ORDERLESS = {"data without an order"}


@pytest.fixture(scope="module")
def results():
    calls = [(f"{CASES}:one_go_and_interrupted", (NUM_REPLICAS, name)) for name in RECIPES]
    calls.append((f"{CASES}:larger_batch", (NUM_REPLICAS,)))
    return {args[-1]: result for (_, args), result in run_together(calls, timeout_s=900).items()}


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in ORDERLESS])
def test_equals_one_go(results, name):
    _check_equal(*_outcomes(results[name]))


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_goes_on_with_more_replicas_and_with_fewer(results, tmp_path, before, after):
    name = "accumulation"
    one_go, _ = _outcomes(results[name])
    run_case(f"{CASES}:interrupted", args=(before, name, str(tmp_path)))
    _check_equal(one_go, run_case(f"{CASES}:continued", args=(after, name, str(tmp_path))))


def _check_equal(one_go, continued):
    for kind in ("weights", "optimizer"):
        for expected, value in zip(one_go[kind], continued[kind], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    assert continued["epochs"] == one_go["epochs"]
    assert continued["history"].keys() == one_go["history"].keys()
    for key, expected in one_go["history"].items():
        assert continued["history"][key] == pytest.approx(expected, rel=1e-5), key
    for expected, value in zip(one_go["counted"], continued["counted"], strict=True):
        assert value == pytest.approx(expected) if "best" in expected else value == expected


def test_data_without_an_order_go_on_with_an_epoch(results):
    one_go, continued = _outcomes(results["data without an order"])
    assert continued["epochs"] == one_go["epochs"]
    assert continued["history"]["loss"][0] == pytest.approx(one_go["history"]["loss"][0], rel=1e-5)
    assert int(continued["optimizer"][0]) == int(one_go["optimizer"][0])


def test_larger_batch_goes_on_from_the_examples_seen(results):
    found = results[NUM_REPLICAS]
    assert not isinstance(found, Failure), found
    # 44 examples are 11 steps of 4; 3 more make 44 + 12 examples. Of 8 each, 12 are one step and a half.
    assert found["old"][-1][:2] == (3, 14)
    batch, steps, rate = found["steps"][0]
    assert (batch, steps) == (12 // 8, round(56 / 8))
    # The recipe's schedule, at 56 / 4 of its steps, times 2.
    assert rate == pytest.approx(2 * 0.1 * (1 - 14 / 100), rel=1e-5)
    assert found["old"][-1][2] == pytest.approx(0.1 * (1 - 14 / 100), rel=1e-5)
    assert len(found["steps"]) == math.ceil(44 / 8) - 1


@pytest.fixture(scope="module")
def refusals():
    [messages] = run_together([(f"{CASES}:refusals", ())]).values()
    assert not isinstance(messages, Failure), messages
    return messages


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a layer more", ["whose variable 2 is", "dense_1/kernel' of shape (8, 1)", "/wide/kernel' of shape (8, 5)"]),
        ("another optimizer", ["'sgd/", "'adam/"]),
        ("a second fit", ["holds one run", "has made its 1 epochs"]),
        ("nothing to be read", ["none of which can be read", "Delete the directory"]),
        ("two of them", ["One `Recovery` is enough", "2 among"]),
    ],
)
def test_refusals(refusals, name, parts):
    message = re.sub(r"dense_\d+", "dense_1", refusals[name])
    assert [part for part in parts if part not in message] == [], message


def _outcomes(result):
    assert not isinstance(result, Failure), result
    return result
