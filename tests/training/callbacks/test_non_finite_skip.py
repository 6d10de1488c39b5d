"""Steps with a loss that is not finite, left out in every form of a step, beside runs on data without them."""

import numpy as np
import pytest

from tests.training.callbacks.cases_non_finite import FORMS
from tests.training.together import Failure, run_together

SKIPPED = "tests.training.callbacks.cases_non_finite:skipped"


@pytest.fixture(scope="module")
def results():
    found = run_together([(SKIPPED, (form, 3)) for form in FORMS], timeout_s=900)
    return {form: result for (_, (form, _)), result in found.items()}


def assert_as_without(found):
    for own, expected in zip(found["state"], found["expected_state"], strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)
    assert found["left_out"] == 4
    assert [(epoch, step) for epoch, step, _ in found["found"]][:2] == [(1, 3), (1, 5)][: len(found["found"])]


@pytest.mark.parametrize("form", FORMS)
def test_steps_that_are_left_out_leave_nothing(results, form):
    found = results[form]
    assert not isinstance(found, Failure), found
    if "several" in form:
        # The second call has the fifth step of the epoch; the first one of a call is named.
        assert [where for _, _, where in found["found"]] == [[1], [2], [1], [2]]
    else:
        # Of the last batch, of 6 rows, row 5 is the third replica's.
        assert found["found"] == [(1, 3, [1]), (1, 5, [2]), (2, 3, [1]), (2, 5, [2])]
    assert_as_without(found)
    if form != "two updates":
        # What a step computes of its rows alone is what it is; metrics have not counted them.
        for name, values in found["expected_history"].items():
            np.testing.assert_allclose(found["history"][name], values, rtol=1e-5)
