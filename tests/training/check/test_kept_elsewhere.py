"""What a step keeps in a queue or a table would be shared by replicas in any order."""

import pytest

from tests.processes import run_case
from tests.training.check.cases_kept_elsewhere import KEEPS


@pytest.fixture(scope="module")
def told():
    return run_case("tests.training.check.cases_kept_elsewhere:told", timeout_s=300)


@pytest.mark.parametrize("name", KEEPS)
def test_a_step_that_keeps_something_beside_variables_is_refused(told, name):
    rule, received = told[name].split("\n")[:2]
    assert rule.startswith("The first step of model")
    assert "no variable" in rule
    assert KEEPS[name][1] in received


def test_a_table_that_is_only_read_is_left_as_it_is(told):
    assert told["only read"] == ""
