"""One number of a batch that a loop by hand gives to a metric counts once, as on one device, or is refused."""

import pytest

from tests.exact.cases_numbers_of_loops import EXACT, REFUSED
from tests.processes import run_case, run_workers

RESULTS = "tests.exact.cases_numbers_of_loops:results"


def _assert_exact_or_named(found):
    assert {
        name: each for name, each in found.items() if name in EXACT and (isinstance(each, str) or max(each) > 1e-5)
    } == {}
    assert {name for name in REFUSED if "is given one number by each replica" in found[name]} == set(REFUSED)


@pytest.mark.parametrize("shapes", ["known", "open"])
def test_on_replicas_of_one_process(shapes):
    _assert_exact_or_named(run_case(RESULTS, args=(3, shapes), timeout_s=300))


def test_on_workers():
    for found in run_workers(RESULTS, 2, args=(1, "known"), timeout_s=300):
        _assert_exact_or_named(found)
