"""Runs of L logical replicas on as many devices, and on half of them; `test_logical_replicas.py` has one and three."""

import pytest

from tests.processes import run_case
from tests.training.step import cases_logical_replicas as cases
from tests.training.step.test_logical_replicas import CASES, beyond_tolerance, on_four_devices

__all__ = ["on_four_devices"]


@pytest.fixture(scope="module", params=(2, 4))
def on_devices(request):
    return run_case(f"{CASES}:runs", args=(request.param, cases.LOGICAL), timeout_s=600.0)


@pytest.mark.parametrize("name", cases.RUNS)
def test_is_the_run_of_as_many_devices(on_devices, on_four_devices, name):
    assert beyond_tolerance(on_devices[name], on_four_devices[name]) == {}
