import pytest

from tests.processes import run_case

CASES = "tests.training.check.cases_full_float32"


@pytest.mark.parametrize("tf32", [True, False])
def test_a_step_is_looked_at_in_float32_and_trained_as_before(tf32):
    in_tf32, afterwards = run_case(f"{CASES}:settings", args=(tf32,))
    assert afterwards == tf32
    # Two replicas take three steps; what is looked at comes on top.
    assert in_tf32.count(True) == (6 if tf32 else 0)
    assert len(in_tf32) > 6


def test_what_was_set_is_put_back_after_an_error():
    assert run_case(f"{CASES}:settings_around_an_error") == [True, False, True]
