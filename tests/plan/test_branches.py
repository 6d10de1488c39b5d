"""The critical batch from branches: the numbers, and a linear model's own."""

import math

import pytest

from tests.processes import run_case
from tfscale import MeasureError
from tfscale.measure import StepMoments, TraceRow
from tfscale.parity.target import find_target
from tfscale.plan.branches import from_branches, stretch_steps
from tfscale.plan.source import Trace


def law(critical, batch=16):
    return {k: (1 + k * batch / critical) / (1 + batch / critical) for k in (4, 8, 16)}


@pytest.mark.parametrize("critical", [8, 40, 200, 450])
def test_the_law_comes_back(critical):
    found = from_branches(law(critical), 16)
    assert found.value == pytest.approx(critical, rel=0.02)
    assert (found.low, found.high) == pytest.approx((critical / 2, critical * 2), rel=0.02)


def test_a_branch_that_did_not_get_there_tells_nothing():
    assert from_branches(law(200) | {16: math.inf}, 16).value == pytest.approx(200, rel=0.02)
    with pytest.raises(MeasureError, match=r"Received: \[4\] times the batch of 16 did, of \[4, 8, 16\]"):
        from_branches({4: 1.2, 8: math.inf, 16: math.inf}, 16)


def test_beyond_the_largest_branch_it_is_not_told():
    found = from_branches({4: 0.97, 8: 0.99, 16: 1.01}, 16)
    assert (found.value, found.low, found.high) == (None, 128, math.inf)


@pytest.mark.parametrize(("ratio", "is_too_low"), [(0.55, True), (0.79, True), (0.85, False), (math.inf, False)])
@pytest.mark.parametrize("critical", [40, 1e6])
def test_a_rate_that_is_too_low_is_a_caution(critical, ratio, is_too_low):
    found = from_branches(law(critical), 16, at_twice_the_rate=ratio)
    assert ["the rate is too low, twice the rate alone takes" in each for each in found.cautions] == [True] * is_too_low
    assert "16 times the batch" in found.note
    assert "caution" not in found.note


def test_the_largest_branch_has_twenty_steps_and_forgets_twice():
    assert [stretch_steps(each) for each in (0.0, 0.9, 0.95, 0.98)] == [320, 320, 640, 1600]


def test_digits():
    value, refusals, cautions = run_case("tests.plan.test_branches:calibrated", timeout_s=400)
    assert 40 < value < 1200  # a study has 150 to 209 to loss 0.1
    assert "Received: a batch of 128, and 1297 examples." in refusals[0]
    assert "Received: a schedule of the rate." in refusals[1]
    # An eighth of the best rate, and the best one.
    assert ["the rate is too low" in "".join(each) for each in cautions] == [True, False]


def calibrated():
    from tfscale.trials.branching import calibrate
    from tfscale.trials.branching_command import calibration

    build, data = (find_target(f"tests/trials/digits.py:{name}", name) for name in ("for_small_batches", "data"))
    refusals = []
    for name, batch in (("build", 128), ("scheduled", 16)):
        try:
            calibrate(find_target(f"tests/trials/digits.py:{name}", "build"), data, batch=batch)
        except MeasureError as error:
            refusals.append(str(error))
    trace = Trace("noise.csv", (TraceRow(1, 16.0, StepMoments(1.0, 1.0, 16.0, 4), 1.0, 0.0),), {"optimizer": "AdamW"})
    with pytest.raises(MeasureError, match=r"Received: optimizer 'AdamW' in 'noise.csv', and 'SGD' in tests/trials"):
        calibration(*(f"tests/trials/digits.py:{name}" for name in ("for_small_batches", "data")))(trace)
    found = calibrate(build, data, batch=16, seeds=1)
    too_low, tuned = (
        calibrate(find_target(f"tests/trials/digits.py:{name}", "build"), data, batch=16, seeds=1).cautions
        for name in ("too_low", "tuned")
    )
    return found.value or found.low, refusals, (too_low, tuned)
