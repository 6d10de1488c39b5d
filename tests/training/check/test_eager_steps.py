"""Is a step that runs eagerly as on one replica, also where its first batch does not show it?"""

import numpy as np
import pytest

from tests.processes import run_case
from tests.training.check.cases_eager_steps import BATCH, COUNTED, KINDS, X

CASES = "tests.training.check.cases_eager_steps"
# What TensorFlow says of `run_functions_eagerly` and `tf.data`.
pytestmark = pytest.mark.filterwarnings("ignore:Even though the `tf.config.experimental_run_functions_eagerly`")


@pytest.mark.parametrize("kind", ["clipped", "plain"])
@pytest.mark.parametrize("all_functions", [False, True])
def test_it_is(kind, all_functions):
    (ours, said), (expected, _) = (run_case(f"{CASES}:trained", args=(n, kind, all_functions)) for n in (3, 1))
    for own, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    assert not any("no graph" in each for each in said)


def test_masks_are_no_threshold():
    for own, other in zip(*run_case(f"{CASES}:masked"), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("how", COUNTED)
def test_a_number_of_replicas_is_one_in_a_step_or_refused(how):
    found = run_case(f"{CASES}:counted", args=(how,))
    if how in ("times its inverse", "times it"):
        assert "takes for a plain number what the script made of `strategy.num_replicas_in_sync`" in found
        assert "Write `loss / strategy.num_replicas_in_sync` in the step" in found
    else:
        assert found < 1e-6


def test_what_cannot_be_read_is_said():
    assert KINDS.keys() == {"clipped", "plain", "decided in Python"}
    _, said = run_case(f"{CASES}:trained", args=(3, "decided in Python", False))
    [found] = [each for each in said if "no graph" in each]
    assert "an `if` of Python" in found


def test_functions_of_a_loop():
    expected = [X[start : start + BATCH].sum() for start in range(0, len(X), BATCH)]
    np.testing.assert_allclose(run_case(f"{CASES}:loop_of_functions"), expected, rtol=1e-5)


def test_tensors_of_other_shapes_are_told_before_they_are_gathered():
    found = run_case(f"{CASES}:of_other_shapes")
    assert "prediction 'outputs': of another shape than on one replica" in found["Table"]
    assert "has another rank on another replica" in found["Squeezed"]
