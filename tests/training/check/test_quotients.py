"""A step that divides by a sum over its own rows is told from its graph, before any batch shows it."""

import pytest

from tests.processes import run_case
from tests.training.check.cases_quotients import BY_A_SUM, BY_NO_SUM

CASES = "tests.training.check.cases_quotients"
MASKED = ("masks of Keras, sum_over_batch_size", "masks of Keras, mean_with_sample_weight")


@pytest.fixture(scope="module")
def told():
    return run_case(f"{CASES}:told", timeout_s=300)


@pytest.mark.parametrize("name", BY_A_SUM)
def test_what_divides_by_a_sum_over_rows_gets_all_rows(told, name):
    assert "mixes the rows" in told[name]


@pytest.mark.parametrize("name", [*BY_NO_SUM, *MASKED])
def test_what_does_not_is_left_as_it_is(told, name):
    assert "mixes the rows" not in told[name]
    assert "divides on each replica" not in told[name]


def test_where_the_step_can_be_divided_in_no_other_way_it_trains_with_a_warning(told):
    assert "divides on each replica" in told["draws beside"]
    assert "Nothing was updated" not in told["draws beside"]
