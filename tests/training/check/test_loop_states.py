"""What a loop by hand assigns to variables is what one replica would, or is refused by name."""

import pytest

from tests.processes import run_case
from tests.training.check.cases_loop_states import ALIKE, APART, EQUAL, REPEATED

PHRASES = {
    **dict.fromkeys(APART, "Bring the replicas together first"),
    **dict.fromkeys(REPEATED, "assigned in `strategy.run` from its old value"),
    **dict.fromkeys(ALIKE, "to which every replica adds 1"),
}


@pytest.fixture(scope="module")
def found():
    names = [*PHRASES, *EQUAL]
    return run_case("tests.training.check.cases_loop_states:found", args=(names,), timeout_s=300)


@pytest.mark.parametrize("name", PHRASES)
def test_what_one_replica_would_not_leave_is_refused(found, name):
    variable, _, error = found[name].partition(": ")
    assert PHRASES[name] in error
    assert variable in error


@pytest.mark.parametrize("name", EQUAL)
def test_what_one_replica_would_leave_is_left(found, name):
    assert found[name] < 1e-5
