"""A step of a loop by hand that is given batches of two data sets is that of one device, or is refused."""

import pytest

from tests.processes import run_case, run_workers

CASES = "tests.training.step.cases_several_data"
BY_REPLICAS = {"of Keras", "over replicas", "average"}


@pytest.mark.parametrize(("replicas", "other"), [(2, 4), (2, 5), (3, 5)])
def test_on_replicas_of_one_process(replicas, other):
    _assert_exact_or_named(run_case(f"{CASES}:misses", args=(replicas, other), timeout_s=200), other)


@pytest.mark.parametrize("other", [4, 5])
def test_on_workers(other):
    for found in run_workers(f"{CASES}:misses", 2, args=(1, other), timeout_s=200):
        _assert_exact_or_named(found, other)


def _assert_exact_or_named(found, other):
    assert "must be a part of a sum" in found.pop("root over the batch")
    # Of eight rows each of two replicas has half, of five it has not.
    refused = {name for name, each in found.items() if isinstance(each, str)}
    assert refused == (BY_REPLICAS if other == 5 else set())
    assert all("batches of several data sets" in found[name] for name in refused)
    assert all(found[name] < 1e-6 for name in found.keys() - refused)


def test_batches_of_two_sizes_that_are_put_together_are_refused():
    said = run_case(f"{CASES}:put_together", timeout_s=100)
    assert "batches of 5 and 8 rows" in said
    assert "experimental_distribute_dataset" in said
