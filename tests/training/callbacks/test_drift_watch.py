"""One replica's copy of a weight is corrupted: the run stops and names it; otherwise nothing happens."""

import re

import pytest

from tests.processes import run_case
from tests.training.callbacks.cases_drift import CASES
from tests.training.together import Failure, run_together
from tfscale import CallbackError
from tfscale.callbacks import DriftWatch

MODULE = "tests.training.callbacks.cases_drift"
STALLED = "tests.training.callbacks.cases_watches:step_that_does_not_end"
# The smallest number that changes a float32 near 1 at all.
LAST_BIT = 2.0**-23


@pytest.fixture(scope="module")
def results():
    calls = [(f"{MODULE}:run", (name, 3, 2, 0.5)) for name in CASES]
    calls += [(f"{MODULE}:run", ("EMA", 3, 0, LAST_BIT))]
    # The last one ends with an error, and shares the process only to save its start.
    others = [(f"{MODULE}:checksums", ()), (STALLED, (3,))]
    return run_together([*calls, *others])


def result_of(results, function, *args):
    result = results[f"{MODULE}:{function}", args]
    assert not isinstance(result, Failure), result
    return result


@pytest.mark.parametrize("name", CASES)
def test_corrupted_replica_is_named(results, name):
    clean, corrupted = result_of(results, "run", name, 3, 2, 0.5)
    assert clean == ""
    assert re.search(r"Received: in step \d+ of this fit, replica 2 \(worker 0\) differs from replica 0", corrupted)
    assert "of its largest value" in corrupted


def test_one_bit_is_enough_and_most_are_right(results):
    clean, corrupted = result_of(results, "run", "EMA", 3, 0, LAST_BIT)
    assert clean == ""
    # Corrupted after step 6; steps 1, 2, 4, 6, 8 ... are looked at.
    assert "in step 8 of this fit, replica 0 (worker 0) differs from replica 1" in corrupted


def test_checksums(results):
    found = result_of(results, "checksums")
    assert all(1 <= value < 2**24 and value == int(value) for pair in found for value in pair)
    are_equal = [left == right for left, right in found]
    assert are_equal == [True, False, False, True, False, True, *[False] * 8]


def test_model_that_is_not_prepared(results):
    assert "`DriftWatch` needs a prepared model" in run_case(f"{MODULE}:not_prepared")


def test_stall_of_one_worker_alone(results):
    assert not isinstance(results[STALLED, (3,)], Failure), results[STALLED, (3,)]
    said, threads = results[STALLED, (3,)]
    assert "step 2 of this fit takes longer than 1 s. No worker has arrived at its reduction" in "\n".join(said)
    assert said[-1] == "failed"
    assert threads == []


@pytest.mark.parametrize("every_steps", [0, -1, 1.5, True, None])
def test_bad_interval(every_steps):
    with pytest.raises(CallbackError, match="`every_steps` must be a positive integer"):
        DriftWatch(every_steps)


@pytest.mark.parametrize("tolerance", [-1, "none", True, float("nan")])
def test_bad_tolerance(tolerance):
    with pytest.raises(CallbackError, match="`tolerance` must be"):
        DriftWatch(tolerance=tolerance)
