"""What a loop by hand makes of its replicas' rows is a part of a sum, or is refused by name."""

import pytest

from tests.processes import run_case, run_workers
from tests.training.check.cases_loop_numbers import BENT, ORDERS, SUMS, TWICE


@pytest.fixture(scope="module")
def found():
    return run_case("tests.training.check.cases_loop_numbers:found", timeout_s=300)


@pytest.mark.parametrize("name", BENT)
def test_what_is_no_sum_is_refused(found, name):
    assert "must be a part of a sum" in found[f"bent: {name}"]


@pytest.mark.parametrize("kind", ["twice", "twice, in a function"])
@pytest.mark.parametrize("name", TWICE)
def test_what_is_divided_twice_is_refused(found, kind, name):
    assert "divided by the number of replicas once" in found[f"{kind}: {name}"]


@pytest.mark.parametrize("name", SUMS)
def test_what_is_a_sum_is_that_of_one_replica(found, name):
    assert found[f"sums: {name}"] < 1e-6


def test_rows_that_are_as_many_as_units_are_told_from_them():
    found = run_case("tests.training.check.cases_loop_numbers:found_alike", timeout_s=300)
    refused = {name for name, error in found.items() if "must be a part of a sum" in str(error)}
    # On the way back from there nothing but its length tells that an axis is that of the rows.
    untold = {"bent: a total by classes, for each row", "bent: pairs of rows by einsum"}
    assert refused == {f"bent: {name}" for name in BENT} - untold
    assert {name: error for name, error in found.items() if name not in refused | untold and error > 1e-6} == {}


def test_a_replica_without_rows_has_no_part():
    found = run_case("tests.training.check.cases_loop_numbers:found_of_few", timeout_s=300)
    assert {name: error < 1e-6 for name, error in found.items()} == dict.fromkeys(found, True)


def test_some_replicas_have_one_row():
    found = run_case("tests.training.check.cases_loop_numbers:found_of_four", timeout_s=300)
    assert "must be a part of a sum" in str(found.pop("a root of a mean"))
    assert {name: each for name, each in found.items() if isinstance(each, str) or each > 1e-6} == {}


def test_a_worker_without_rows_has_no_part():
    for found in run_workers("tests.training.check.cases_loop_numbers:found_of_one", 2, timeout_s=300):
        assert {name: each for name, each in found.items() if isinstance(each, str) or each > 1e-6} == {}


@pytest.mark.parametrize("source", ["read", "captured"])
def test_rows_that_a_function_is_not_given_are_looked_at_too(source):
    found = run_case("tests.training.check.cases_loop_numbers:found_in_function", args=(source,), timeout_s=300)
    refused = {name: "must be a part of a sum" in str(each) for name, each in found.items()}
    assert refused == {**dict.fromkeys(found, True), ORDERS[-1]: False}
    assert found[ORDERS[-1]] < 1e-6
