"""Ctrl-C at any moment of a call: it is heard, the process trains again, and a run that was saved goes on."""

import math

import numpy as np
import pytest

from tests.processes import run_case

CASES = "tests.training.cases_interrupt"
COUNT = 2
# Where something was being built: what of it says that it must be made anew, and whether `compile` does that.
HALF_MADE = {"optimizer's build": "the optimizer 'adam", "layer's build": "the layer 'own_layer"}
AS_BEFORE = ("optimizer's build", "rehearsal", "look, traced", "look", "look, put back", "train begins")
PLACES = (
    *HALF_MADE,
    *AS_BEFORE[1:],
    "step, traced",
    "eager step",
    "keys",
    "keys, looked at",
    "assignment",
    "batch ends",
    "epoch ends",
    "train ends",
    "evaluate",
    "predict",
    "data",
    "save, values read",
    "save, written",
)


@pytest.fixture(scope="module")
def places():
    return run_case(f"{CASES}:at_places", args=(2,), timeout_s=600)


@pytest.mark.parametrize("place", PLACES)
def test_it_is_heard(places, place):
    found = places[place]
    assert found["error"] == "KeyboardInterrupt"
    assert not found["threads"]
    assert found["handler"]


@pytest.mark.parametrize("place", PLACES)
def test_all_replicas_have_the_same_weights(places, place):
    assert places[place]["is alike"]


@pytest.mark.parametrize("place", AS_BEFORE)
def test_nothing_was_updated(places, place):
    assert places[place]["is as before"]


def test_another_model_trains_as_if_nothing_had_been(places):
    found, expected = places["trains"]
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_the_same_model_trains_on_or_says_what_to_make_anew(places, place):
    found = places[place]
    if place in HALF_MADE:
        assert found["after"].startswith("ModelError: What was interrupted while it was built must be made anew.")
        assert f"Received: {HALF_MADE[place]}" in found["after"]
        assert found["compiled anew"].startswith("ModelError" if place == "layer's build" else "no error")
    else:
        assert found["after"].startswith("no error")


def test_a_loop_by_hand_goes_on_though_not_all_replicas_had_their_keys():
    found = run_case(f"{CASES}:at_keys_of_a_loop", args=(3,), timeout_s=120)
    assert set(map(str, found.values())) == {str(("KeyboardInterrupt", [12.0]))}


@pytest.fixture(scope="module")
def moments():
    return run_case(f"{CASES}:at_moments", args=(3, COUNT), timeout_s=600)


def assert_same(found, expected):
    loss, weights = found
    assert loss == pytest.approx(expected[0], rel=1e-6)
    for own, other in zip(weights, expected[1], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-7)


def test_nearly_all_of_them_came_in_time(moments):
    assert [each["error"] for each in moments["found"]].count("KeyboardInterrupt") >= COUNT // 2


@pytest.mark.parametrize("index", range(COUNT))
def test_the_process_trains_again(moments, index):
    found = moments["found"][index]
    assert found["is alike"]
    outcome, _, loss = found["after"].partition(": ")
    assert outcome == "ModelError" or (outcome == "no error" and math.isfinite(float(loss)))
    assert_same(found["new"], moments["expected"])


@pytest.mark.parametrize("index", range(COUNT))
def test_a_run_that_was_saved_goes_on(moments, index):
    assert_same(moments["found"][index]["resumed"], moments["expected"])
