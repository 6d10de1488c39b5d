"""Several steps in one call: each sees the weights that the one before has left, whatever it needs of all replicas.

And however large what it gathers is: a loop's collective has one key, and TensorFlow takes one shape for a key.
"""

import pytest

from tests.processes import run_case
from tests.training.step.cases_several_steps import PROGRAMS


@pytest.fixture(scope="module")
def found():
    return run_case("tests.training.step.cases_several_steps:several_steps", args=(2,))


@pytest.mark.parametrize("name", PROGRAMS)
def test_are_as_one_by_one(found, name):
    assert found[name] < 1e-4


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_epoch_in_a_function_of_ones_own(num_replicas):
    assert run_case("tests.training.step.cases_several_steps:loop_by_hand", args=(num_replicas,)) < 1e-4
