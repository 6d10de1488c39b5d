"""What `dp.dataset` refuses, and how it says so."""

import pytest

from tests.data.example_rows import X
from tests.training.together import run_together

CASES = "tests.data.cases_bad_input"
REFUSED = {
    "batched": ("DataError", "Leave the .batch"),
    "batched, then prefetched": ("DataError", "Leave the .batch"),
    "batched, then mapped": ("DataError", "Leave the .batch"),
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
    "ragged": ("DataError", "dict with RaggedTensor"),
    "seed": ("DataError", "seed=-1"),
    "large seed": ("DataError", "seed=9223372036854775808"),
    "fractional seed": ("DataError", "seed=0.5"),
    "cache": ("DataError", "cache='disk'"),
    "kept with a seed": ("DataError", "a map_fn that takes a seed"),
    "kept without map_fn": ("DataError", "no map_fn"),
}


@pytest.fixture(scope="module")
def found():
    calls = [(f"{CASES}:refused", (kind,)) for kind in REFUSED]
    results = run_together([*calls, (f"{CASES}:accepted", ())])
    return {args[0] if args else "accepted": result for (_, args), result in results.items()}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(found, kind):
    error, said = REFUSED[kind]
    assert f"{error}: " in found[kind]
    assert said in found[kind]


def test_batched(found):
    assert "single examples" in found["batched"]


def test_accepted(found):
    assert found["accepted"] == [11, 11, 33, X.size]
