"""Runs of L logical replicas are those of L devices, on however many they run."""

import pytest

from tests.processes import run_case, run_workers
from tests.training.contract import OPTIMIZER_TOLERANCE, TOLERANCE, differences
from tests.training.step import cases_logical_replicas as cases

CASES = "tests.training.step.cases_logical_replicas"
DEVICES = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def on_four_devices():
    """What four devices compute without logical replicas."""
    return run_case(f"{CASES}:runs", args=(cases.LOGICAL, None), timeout_s=600.0)


@pytest.fixture(scope="module", params=DEVICES)
def on_devices(request):
    return run_case(f"{CASES}:runs", args=(request.param, cases.LOGICAL), timeout_s=600.0)


@pytest.mark.parametrize("name", cases.RUNS)
def test_is_the_run_of_as_many_devices(on_devices, on_four_devices, name):
    assert beyond_tolerance(on_devices[name], on_four_devices[name]) == {}


def beyond_tolerance(ours, expected):
    found = differences(ours, expected)
    assert found
    allowed = {"optimizer": OPTIMIZER_TOLERANCE}
    return {key: gap for key, gap in found.items() if not gap <= allowed.get(key, TOLERANCE)}


def test_on_two_workers_too(on_four_devices):
    args = (1, cases.LOGICAL, cases.ON_WORKERS)
    for results in run_workers(f"{CASES}:runs", 2, args=args, timeout_s=300.0):
        for name in cases.ON_WORKERS:
            assert beyond_tolerance(results[name], on_four_devices[name]) == {}
