"""Code of one's own is looked at in the parts in which a device runs its rows, also on a single device."""

import pytest

from tests.processes import run_case
from tests.training.check.cases_parts import MIXING, ROW_BY_ROW

CASES = "tests.training.check.cases_parts"
RUNS = {
    "micro-steps of one device": (1, {"micro_batch": 3}),
    "micro-steps of two": (2, {"micro_batch": 2}),
    "logical replicas on one device": (1, {"logical_replicas": 4}),
    "logical replicas on two": (2, {"logical_replicas": 4}),
}
# What needs all rows is given them at once where several replicas can.
RUN_ON_ALL_ROWS = {("micro-steps of two", "loss"), ("micro-steps of two", "layer")}


@pytest.fixture(scope="module")
def found():
    runs = {}

    def of(run):
        if run not in runs:
            num_replicas, arguments = RUNS[run]
            runs[run] = run_case(f"{CASES}:in_parts", args=(num_replicas, arguments), timeout_s=300)
        return runs[run]

    return of


@pytest.mark.parametrize("name", ROW_BY_ROW)
@pytest.mark.parametrize("run", RUNS)
def test_what_computes_row_by_row_is_as_in_one_pass(found, run, name):
    assert found(run)[name] < 1e-5


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("run", RUNS)
def test_what_mixes_rows_or_adds_them_up_is_refused_before_anything_is_updated(found, run, name):
    outcome = found(run)[name]
    if (run, name) in RUN_ON_ALL_ROWS or (name == "sum" and RUNS[run][0] > 1):
        assert outcome < 1e-5
        return
    error, text, steps = outcome
    assert error in ("ParityError", "ModelError")
    assert steps == 0
    assert "micro_batch" in text or "logical_replicas" in text


def test_the_error_says_what_to_write_around_a_sum(found):
    error, text, _ = found("micro-steps of one device")["sum"]
    assert error == "ParityError"
    assert "tfscale.sum_over_examples(loss)" in text


def test_a_metric_that_needs_all_rows_is_named(found):
    error, text, _ = found("micro-steps of two")["metric"]
    assert error == "ModelError"
    assert "'among_rows'" in text


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_micro_steps_beside_batch_norm_are_not_looked_at_and_the_log_says_so(num_replicas):
    text = run_case(f"{CASES}:beside_batch_norm", args=(num_replicas, {"micro_batch": 2}))
    assert "has BatchNormalization, which sees a part of the rows at a time" in text
    assert "layer 'squared'" in text


def test_logical_replicas_beside_batch_norm_are_refused_on_one_device():
    text = run_case(f"{CASES}:beside_batch_norm", args=(1, {"logical_replicas": 4}))
    assert text.startswith("ModelError: Code of your own must make means over its rows")
