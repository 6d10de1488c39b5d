"""What `dp.dataset` refuses, and how it says so."""

import pytest

from tests.training.together import run_together

CASES = "tests.training.data.cases_data"
REFUSED = {
    "batched": ("DataError", "Leave the .batch"),
    "batched, then prefetched": ("DataError", "Leave the .batch"),
    "infinite": ("DataError", ".take(n)"),
    "unknown": ("DataError", "assert_cardinality"),
    "lengths": ("DataError", "shapes (33, 5), (30, 1)"),
    "scalar": ("DataError", "one row per example"),
    "empty": ("DataError", "at least one example"),
    "empty stream": ("DataError", "at least one example"),
    "nothing": ("DataError", "NoneType"),
    "text": ("DataError", "str"),
    "map_fn": ("DataError", "returns a dataset"),
    "load": ("DataError", "worker_load=[1, 2]"),
    "dropped": ("DataError", "5 examples and a global batch of 10"),
    "position": ("DataError", "step=4"),
}


@pytest.fixture(scope="module")
def found():
    calls = [(f"{CASES}:refused", (kind,)) for kind in REFUSED]
    return {kind: result for (_, (kind,)), result in run_together(calls).items()}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(found, kind):
    error, said = REFUSED[kind]
    assert f"{error}: " in found[kind]
    assert said in found[kind]


def test_batched(found):
    assert "single examples" in found["batched"]
