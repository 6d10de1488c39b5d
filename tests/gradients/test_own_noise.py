"""Noise that is added to gradients is that of one device, or is refused."""

import pytest

from tests.processes import run_case

CASES = "tests.gradients.cases_own_noise"


@pytest.mark.parametrize("name", ["keras.random", "a seed by hand"])
def test_noise_of_gradients_is_as_large_as_on_one_device(name):
    spread, are_equal, _ = run_case(f"{CASES}:spread", args=(name,), timeout_s=200)
    # Of 2000 numbers, of which each is made of six: a 60th off at most times out of two.
    assert spread == pytest.approx(1.0, abs=0.08)
    assert are_equal


def test_what_no_replica_draws_alike_is_refused():
    said = run_case(f"{CASES}:refused", args=("tf.random",), timeout_s=200)
    assert said.startswith("ParityError")
    assert "adds to gradients what each replica draws by itself" in said
    assert "stateless_normal" in said


def test_drawn_weights_are_noise_of_the_rows():
    assert not [each for each in run_case(f"{CASES}:drawn_weights") if "mixes the rows" in each or "gradients" in each]
