"""Several steps in one call: each sees the weights that the one before has left, whatever it needs of all replicas."""

import pytest

from tests.processes import run_case
from tests.training.step.cases_several_steps import PROGRAMS


@pytest.fixture(scope="module")
def found():
    return run_case("tests.training.step.cases_several_steps:several_steps", args=(2,))


@pytest.mark.parametrize("name", PROGRAMS)
def test_are_as_one_by_one(found, name):
    assert found[name] < 1e-4
