"""Does a loop by hand that works on its gradients itself get those of one device, or an error?"""

import numpy as np
import pytest

from tests.gradients.cases_by_hand import LINEAR, LOSSES, PENALTIES, WAYS
from tests.processes import run_case, run_workers

CASES = "tests.gradients.cases_by_hand"


def assert_named(found, cases, way_out):
    """Those of the cases that say so are refused with this way out, and all others are as on one device."""
    refused = {name for name, each in found.items() if isinstance(each, str)}
    assert {name: found.get(name) for name in refused ^ {name for name, way in cases.items() if way[1]}} == {}
    assert {name: each for name, each in found.items() if name not in refused and each > 1e-5} == {}
    assert all(way_out in found[name] for name in refused)


@pytest.mark.parametrize("replicas", [2, 3])
def test_gradients_between_tape_and_optimizer(replicas):
    found = run_case(f"{CASES}:ways", args=(replicas,), timeout_s=300)
    assert_named(found, WAYS, "tfscale.sum_gradients")


@pytest.mark.parametrize(("replicas", "shapes"), [(3, "known"), (2, "open")])
def test_a_loss_that_is_a_mean_of_own_rows_is_refused(replicas, shapes):
    found = run_case(f"{CASES}:losses", args=(replicas, shapes), timeout_s=300)
    assert_named(found, LOSSES, "num_replicas_in_sync")


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_penalty_that_nobody_divides_is_refused(replicas):
    found = run_case(f"{CASES}:penalties", args=(replicas,), timeout_s=300)
    assert_named(found, PENALTIES, "num_replicas_in_sync")


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_loss_that_is_linear_in_a_bias_is_a_part_of_a_sum(replicas):
    found = run_case(f"{CASES}:linear", args=(replicas,), timeout_s=300)
    assert_named(found, LINEAR, "scale_regularization_loss")


def test_means_that_a_replica_asks_for():
    assert {name: by for name, by in run_case(f"{CASES}:means", args=(3,), timeout_s=120).items() if by > 1e-5} == {}


@pytest.mark.parametrize("way", ["given", "traced"])
def test_a_function_that_gets_the_rows_of_a_replica(way):
    assert run_case(f"{CASES}:own_function", args=(way, 3)) < 1e-6


@pytest.fixture(scope="module")
def on_one_device():
    return run_case(f"{CASES}:own_function_on_one_device")


@pytest.mark.parametrize("way", ["given", "traced", "eagerly"])
def test_a_function_that_gets_the_rows_of_a_worker(on_one_device, way):
    for found in run_workers(f"{CASES}:own_function_on_workers", 2, args=(way,)):
        for own, one in zip(found, on_one_device, strict=True):
            np.testing.assert_allclose(own, one, atol=1e-6)


def test_replicas_that_take_turns_cannot_send_from_a_function():
    assert "put `tf.function` around `strategy.run`" in run_case(f"{CASES}:own_function", args=("eagerly", 3))
