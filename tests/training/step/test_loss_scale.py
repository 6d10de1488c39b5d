"""In float16, the steps whose loss scale was too large are those of one replica."""

import numpy as np
import pytest

from tests.processes import run_case
from tests.training.step.cases_loss_scale import EAGER, NAMES

CASES = "tests.training.step.cases_loss_scale"


@pytest.fixture(scope="module")
def alone():
    return run_case(f"{CASES}:fits", args=(1,), timeout_s=300)


@pytest.fixture(scope="module")
def divided():
    return run_case(f"{CASES}:fits", args=(3,), timeout_s=300)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_steps_are_skipped(alone, divided, name):
    scales, _ = divided[name]
    assert scales == alone[name][0]
    # Else nothing was shown.
    assert scales[-1] < 15


@pytest.mark.parametrize("name", NAMES)
def test_the_same_is_trained(alone, divided, name):
    assert_close(divided[name][1], alone[name][1])


def test_what_runs_eagerly_is_summed_once():
    alone, divided = (run_case(f"{CASES}:fits_eagerly", args=(count,), timeout_s=300) for count in (1, 3))
    for name in EAGER:
        assert divided[name][0] == alone[name][0]
        assert_close(divided[name][1], alone[name][1])


def assert_close(weights, reference):
    # What float16 rounds, as in the contract.
    np.testing.assert_allclose(weights, reference, atol=5e-3 * np.abs(reference).max())
