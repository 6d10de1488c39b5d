"""A loop by hand that fills rows up to the longest of a replica is warned of it, once."""

import pytest

from tests.processes import run_case
from tests.training.check.cases_own_lengths import CASES, WARNED


@pytest.fixture(scope="module")
def found():
    return run_case("tests.training.check.cases_own_lengths:found", timeout_s=200)


@pytest.mark.parametrize("name", CASES)
def test_a_length_of_own_rows_is_warned_of(found, name):
    assert found[name] == (name in WARNED)
