"""What is drawn in an update is what one device draws, on every replica."""

import numpy as np
import pytest

from tests.exact.cases_draws_of_updates import PROGRAMS
from tests.processes import run_case

CASES = "tests.exact.cases_draws_of_updates"


@pytest.fixture(scope="module")
def weights():
    return run_case(f"{CASES}:weights_of_programs", timeout_s=200)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_replica_draws_what_one_would(weights, name):
    for one, several in zip(*weights[name], strict=True):
        np.testing.assert_allclose(several, one, rtol=1e-4, atol=1e-5)


def test_replicas_that_draw_apart_are_told_at_the_end_of_an_epoch():
    said = run_case(f"{CASES}:refusal", args=("drawn by each",))
    assert said.startswith("DriftError: ")
    assert "at the end of epoch 1, replica 1" in said
    assert "dense/kernel" in said
    assert "draw it by `keras.random`" in said


def test_without_the_check_they_are_warned_of_once():
    (said,) = run_case(f"{CASES}:warned_of")
    assert "at the end of epoch 1, replica 1" in said
