"""A step that goes by a number of the batch is told from its graph, before any batch shows it."""

import numpy as np
import pytest

from tests.processes import run_case
from tests.training.check.cases_thresholds import BY_THE_BATCH, OF_GRADIENTS, ROW_BY_ROW
from tfscale.training.check.thresholds import may_have_rows

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


def test_a_layer_that_limits_slopes_has_those_of_all_rows():
    one, several = run_case(f"{CASES}:slopes_in_a_layer")
    np.testing.assert_allclose(several, one, rtol=1e-4)


def test_one_row_on_each_replica_is_still_a_row():
    found = run_case(f"{CASES}:told_of_one_row_each", timeout_s=300)
    assert "mixes the rows" in found.pop("a choice")
    assert not [name for name, text in found.items() if "mixes the rows" in text or "threshold" in text]


@pytest.mark.parametrize(
    ("shapes", "sizes", "expected"),
    [
        # Open for rows: what is known is not theirs.
        ([(8,), (8,)], {None}, False),
        # One trace for each size, and the axis goes with it.
        ([(3, 1), (2, 1)], {3, 2}, True),
        ([(3,), (3,)], {3, 2}, False),
        ([(6,), (6,)], {3, 2}, False),
        ([(), ()], {3, 2}, False),
        # As many on all: rows, pairs of rows, tokens.
        ([(3,)], {3}, True),
        ([(9, 5)], {3}, True),
        ([(5,)], {3}, False),
        ([()], {3}, False),
        # One row each: any axis may be theirs, and no axis is not.
        ([(1,)], {1}, True),
        ([(5,)], {1}, True),
        ([()], {1}, False),
        # Met in the trace of one size only.
        ([(2, 8)], {3, 2}, True),
        # Of no rows at all: none of them.
        ([(0,)], {0}, True),
        ([(8,)], {0}, False),
    ],
)
def test_an_axis_of_rows_is_told_by_its_length(shapes, sizes, expected):
    assert may_have_rows(shapes, sizes) is expected
