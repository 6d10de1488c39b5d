"""Do the side effects of one replica wait for another's, which waits for the first in a sum?"""

import pytest

from tests.processes import run_case

CASES = "tests.replicas.cases_turns"


@pytest.mark.parametrize("replicas", [2, 3])
def test_side_effects_before_and_after_a_sum(replicas):
    assert run_case(f"{CASES}:differ", args=(replicas,), timeout_s=120) < 1e-5


def test_those_of_one_replica_are_in_the_order_of_its_step():
    assert run_case(f"{CASES}:order", timeout_s=60) == "first second third; first second third"
