"""Sparse gradients of replicas with different numbers of rows are added up."""

from tests.processes import run_case


def test_places_that_are_constants_of_other_lengths():
    assert run_case("tests.replicas.cases_sparse:captured", timeout_s=120) < 1e-6
