"""A loop by hand is warned once of what no graph tells to be as on one device: lengths of own rows, Python."""

import pytest

from tests.processes import run_case
from tests.training.check.cases_untold import CASES, WARNED


@pytest.fixture(scope="module")
def found():
    return run_case("tests.training.check.cases_untold:found", timeout_s=200)


@pytest.mark.parametrize("name", CASES)
def test_what_no_graph_tells_is_warned_of(found, name):
    assert found[name] == (name in WARNED)
