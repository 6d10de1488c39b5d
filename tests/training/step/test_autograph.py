"""AutoGraph rewrites the user's own functions, also inside of `strategy.run`, and nothing of the library."""

import numpy as np
import pytest

from tests.processes import run_case

TRAIN = "tests.training.step.cases_autograph:train"


@pytest.mark.parametrize("own_metric", [False, True])
def test_the_users_step_is_rewritten(own_metric):
    one, three = (run_case(TRAIN, args=(replicas, own_metric), timeout_s=200) for replicas in (1, 3))
    # Both have branches and loops of tensors, which Python's own could not run in a graph.
    np.testing.assert_allclose(three["losses"], one["losses"], rtol=1e-5)
    np.testing.assert_allclose(three["results"], one["results"], rtol=1e-5)
    for own, other in zip(three["weights"], one["weights"], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    if not own_metric:
        # Rewriting the library took ten times as long as all the rest of the first step.
        assert three["rewritten"] == one["rewritten"] == ["step", "whole_step"]
    else:
        assert {"step", "update_state", "whole_step"} <= set(three["rewritten"])


def test_what_functions_within_functions_call_is_rewritten():
    found = run_case("tests.training.step.cases_autograph:sums_of_functions_within", timeout_s=200)
    assert found == {"by_lambda": [12.0, 12.0], "by_step": [6.0, 6.0]}
