"""Is the mean over replicas that a loop by hand asks for that of the batch, wherever it asks?"""

import pytest

from tests.processes import run_case


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_means(replicas):
    missed = run_case("tests.training.step.cases_hand_means:means", args=(replicas,), timeout_s=120)
    assert {name: by for name, by in missed.items() if by > 1e-6} == {}
