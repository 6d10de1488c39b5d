"""A step that goes by a number of the batch is told from its graph, before any batch shows it."""

import pytest

from tests.processes import run_case
from tests.training.check.cases_thresholds import BY_THE_BATCH, OF_GRADIENTS, ROW_BY_ROW

CASES = "tests.training.check.cases_thresholds"


@pytest.fixture(scope="module")
def told():
    return run_case(f"{CASES}:told", timeout_s=300)


@pytest.mark.parametrize("name", BY_THE_BATCH)
def test_what_goes_by_a_number_of_the_batch_gets_all_rows(told, name):
    assert "mixes the rows" in told[name]


@pytest.mark.parametrize("name", OF_GRADIENTS)
def test_what_clips_gradients_gets_those_of_all_rows(told, name):
    assert "gradients before an optimizer gets them" in told[name]


@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_what_goes_by_each_row_is_left_as_it_is(told, name):
    assert "mixes the rows" not in told[name]
    assert "gradients before" not in told[name]
    assert "threshold" not in told[name]
