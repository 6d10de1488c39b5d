"""A replica without rows has a part of the loss of its loop by hand: zero."""

from tests.processes import run_case, run_workers

CASES = "tests.training.step.cases_scalars"
CASE = f"{CASES}:misses"


def _assert_small(misses):
    assert {name: by for name, by in misses.items() if by > 1e-6} == {}


def test_replicas_without_rows():
    _assert_small(run_case(CASE, args=(3,)))


def test_a_worker_without_rows():
    for misses in run_workers(CASE, 2, args=(1,)):
        _assert_small(misses)


def test_what_cannot_take_no_rows_says_so():
    found = run_case(f"{CASES}:said")
    assert "DataError" in found
    assert "of which a replica has no rows" in found
    assert "reduction=None" in found
