"""Does a loop by hand that works on its gradients itself get those of one device, or an error?"""

import pytest

from tests.gradients.cases_by_hand import WAYS
from tests.processes import run_case

CASES = "tests.gradients.cases_by_hand"


@pytest.mark.parametrize("replicas", [2, 3])
def test_gradients_between_tape_and_optimizer(replicas):
    found = run_case(f"{CASES}:ways", args=(replicas,), timeout_s=300)
    refused = {name for name, each in found.items() if isinstance(each, str)}
    assert {name: found.get(name) for name in refused ^ {name for name, way in WAYS.items() if way[1]}} == {}
    assert {name: each for name, each in found.items() if name not in refused and each > 1e-5} == {}
    assert all("tfscale.sum_gradients" in found[name] for name in refused)


def test_means_that_a_replica_asks_for():
    assert {name: by for name, by in run_case(f"{CASES}:means", args=(3,), timeout_s=120).items() if by > 1e-5} == {}
