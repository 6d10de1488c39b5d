"""A layer of Keras's own that looks at all rows of a batch sees those of all replicas."""

import numpy as np
import pytest

from tests.exact.cases_batch_wide_layers import KINDS
from tests.training.together import Failure, run_together

CASES = "tests.exact.cases_batch_wide_layers"
OTHERS = ("in_micro_steps", "drawn_parts")


@pytest.fixture(scope="module")
def results():
    calls = [*((f"{CASES}:beside_plain", (name,)) for name in KINDS), *((f"{CASES}:{name}", ()) for name in OTHERS)]
    found = run_together(calls)
    return {args[0] if args else target.partition(":")[2]: found[target, args] for target, args in calls}


@pytest.mark.parametrize("name", KINDS)
def test_is_that_of_one_device(results, name):
    assert not isinstance(results[name], Failure), results[name]
    for ours, plain in results[name]:
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-5)


def test_a_part_of_the_rows_is_refused(results):
    assert "MelSpectrogram 'mel_spectrogram" in results["in_micro_steps"]


def test_what_is_drawn_stays_as_it_is(results):
    assert results["drawn_parts"] == ["own"]
