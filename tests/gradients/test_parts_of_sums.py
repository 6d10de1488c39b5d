"""Are parts of a sum that a loop by hand adds something to, or takes means of, those of one device, or refused?"""

import pytest

from tests.gradients.cases_parts_of_sums import ADDED, AVERAGED, RETURNED, SCALARS
from tests.gradients.test_by_hand import assert_named
from tests.processes import run_case

CASES = "tests.gradients.cases_parts_of_sums"


@pytest.mark.parametrize("replicas", [2, 3])
def test_what_is_added_to_gradients_and_nobody_divides_is_refused(replicas):
    found = run_case(f"{CASES}:added", args=(replicas,), timeout_s=300)
    assert_named(found, ADDED, "num_replicas_in_sync")


@pytest.mark.parametrize(("replicas", "shapes"), [(3, "known"), (2, "open")])
def test_the_mean_of_gradients_of_parts_is_refused(replicas, shapes):
    found = run_case(f"{CASES}:averaged", args=(replicas, shapes), timeout_s=300)
    assert_named(found, AVERAGED, 'all_reduce("SUM", ...)')


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_part_beside_a_number_that_nobody_divides_is_refused(replicas):
    found = run_case(f"{CASES}:scalars", args=(replicas,), timeout_s=300)
    assert_named(found, SCALARS | RETURNED, "num_replicas_in_sync")
