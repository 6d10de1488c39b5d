"""Predictions that are no rows of numbers are as on one device, in the first call, too."""

import numpy as np
import pytest

from tests.processes import run_case


@pytest.fixture(scope="module")
def found():
    return run_case("tests.training.check.cases_predictions:predictions")


def test_a_table_of_the_rows_by_the_rows(found):
    ours, expected = map(np.array, found["table"])
    assert ours.shape == (7, 7)
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_names(found):
    ours, expected = found["names"]
    assert ours == expected
    assert set(ours) <= set("abcd")
