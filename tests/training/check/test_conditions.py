"""Layers in branches of a condition: TensorFlow's gradient of one cannot send."""

import numpy as np
import pytest

from tests.processes import run_case

CASE = "tests.training.check.cases_conditions:branches"


@pytest.mark.parametrize("needs", ["gradients", "rows"])
def test_layers_in_branches_of_a_condition(needs):
    one, three = (run_case(CASE, args=(needs, num_replicas)) for num_replicas in (1, 3))
    for expected, got in zip(one, three, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
