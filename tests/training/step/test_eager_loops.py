import pytest

from tests.processes import run_case


@pytest.mark.parametrize(("num_replicas", "times"), [(1, 0), (2, 1)])
def test_a_loop_that_trains_eagerly_is_said_once_not_to_be_looked_at(num_replicas, times):
    found = run_case("tests.training.step.cases_eager_loops:told", args=(num_replicas,))
    assert list(found.values()) == [0, 0, times, times]
