"""The law's fit, against planted curves and a quadratic whose steps are computed."""

import math

import numpy as np
import pytest

from tests.study.noisy_quadratic import steps_to_target
from tfscale import StudyError
from tfscale.study import Trial, TrialResult, fit, fit_law

BATCHES = [8 * 2**power for power in range(7)]


def planted(critical, noise, seed, batches=BATCHES):
    rng = np.random.default_rng(seed)
    return [20 * (1 + critical / batch) * math.exp(noise * rng.standard_normal()) for batch in batches]


@pytest.mark.parametrize("critical", [0.5, 8, 100, 512, 30_000])
def test_a_curve_without_noise(critical):
    found = fit_law(BATCHES, planted(critical, 0, 0))
    assert (found.b_crit, found.s_min) == pytest.approx((critical, 20), rel=1e-3)
    assert found.e_min == pytest.approx(20 * critical, rel=1e-3)
    assert found.steps(64) == pytest.approx(20 * (1 + critical / 64), rel=1e-3)
    assert found.examples(64) == pytest.approx(64 * found.steps(64))
    assert found.rms < 1e-3


def test_the_interval_holds_what_was_planted():
    inside = 0
    for seed in range(200):
        found = fit_law(BATCHES, planted(100, 0.1, seed))
        inside += found.low <= 100 <= found.high
    assert 180 <= inside <= 199


def test_an_interval_without_an_upper_end():
    # All batches are far below the critical one: it may be any.
    found = fit_law([1, 2, 4, 8], planted(1e4, 0.05, 3, [1, 2, 4, 8]))
    assert found.high == math.inf
    assert found.low > 4


@pytest.mark.parametrize(("momentum", "critical"), [(0.0, 26), (0.9, 107)])
def test_noisy_quadratic(momentum, critical):
    batches = [2**power for power in range(1, 13)]
    found = fit_law(batches, [steps_to_target(batch, momentum, 0.5) for batch in batches])
    assert found.b_crit == pytest.approx(critical, rel=0.1)
    assert found.rms < 0.07
    assert 1.0 <= found.exponent < 1.35


@pytest.mark.parametrize(
    ("batches", "steps"),
    [([8], [10.0]), ([8, 8], [10.0, 11.0]), ([8, 16], [10.0]), ([8, 16], [10.0, math.inf]), ([0, 16], [10.0, 5.0])],
)
def test_what_cannot_be_fitted(batches, steps):
    with pytest.raises(StudyError, match="Received: "):
        fit_law(batches, steps)


def results(critical, *, points=8, seeds=3, noise=0.1, batches=BATCHES, seed=0):
    rng = np.random.default_rng(seed)
    for batch in batches:
        for point in range(points):
            # The best rate is that of point 3.
            cost = 1.5 ** abs(point - 3)
            for each in range(seeds if cost < 3 else 1):
                steps = 20 * (1 + critical / batch) * cost * math.exp(noise * rng.standard_normal())
                yield TrialResult(Trial(batch, point, each, {"rate": 2.0**point}), steps, "reached")


def test_a_study():
    found = fit(results(100))
    assert found.b_crit == pytest.approx(100, rel=0.35)
    assert found.interval[0] <= 100 <= found.interval[1]
    assert found.is_bracketed
    assert found.regimes["perfect"] == (0.0, found.b_crit / 4)
    assert found.regimes["20 % overhead"] == (0.0, 0.2 * found.b_crit)
    assert {each["rate"] for each in found.best_parameters.values()} == {8.0}
    assert found.cautions == ()


def test_what_it_says_is_of_examples():
    lines = str(fit(results(100, noise=0, seeds=1))).splitlines()
    assert "batches up to 25 examples waste next to nothing, beyond 400 more examples a step save hardly" in lines[0]
    assert lines[1].startswith("S_min 20 steps, E_min 2e+03 examples, rms of log steps 0.00; up to 20 examples a step")
    assert "replica" not in "".join(lines)
    assert str(fit(results(5000))).startswith("critical batch: at least 512 examples, ")


@pytest.mark.parametrize(("critical", "is_bracketed"), [(250, True), (260, False), (9, True), (7, False)])
def test_twice_the_critical_batch_is_among_those_that_reached_the_target(critical, is_bracketed):
    assert fit(results(critical, noise=0), draws=0).is_bracketed == is_bracketed
    # A batch that did not reach it says nothing.
    rows = [*results(critical, noise=0, batches=BATCHES[:-1]), TrialResult(Trial(512, 0, 0), math.inf, "budget")]
    assert fit(rows, draws=0).is_bracketed == (critical == 9)


def test_one_lucky_seed_is_not_the_best():
    lucky = TrialResult(Trial(8, 7, 0, {"rate": 128.0}), 1.0, "reached")
    rows = [row for row in results(100) if (row.trial.batch, row.trial.point) != (8, 7)]
    assert fit([*rows, lucky]).best_parameters[8]["rate"] == 8.0


@pytest.mark.parametrize(
    ("rows", "caution"),
    [
        (results(5000), "not bracketed: it is at least 512, the largest batch that reached the target"),
        (
            results(340, noise=0),
            "not bracketed: 512, the largest batch that reached the target, is less than twice 340",
        ),
        (results(2, noise=0), "not bracketed: it is below 8, the smallest batch that reached the target"),
        (results(100, noise=0.6, seeds=1), "the points do not follow the law"),
        (results(100, points=4), "4 trials a batch: fewer than 8"),
        ((row for row in results(100) if row.trial.batch > 8 or row.trial.point > 2), "unequal numbers of trials"),
    ],
)
def test_cautions(rows, caution):
    found = fit(rows)
    assert any(caution in each for each in found.cautions), found.cautions
    assert (found.regimes is None) == (found.rms > 0.15)


def test_a_best_rate_at_the_edge_is_told_of_its_batch():
    def rows(batches, points):
        return [row for row in results(100, noise=0, batches=batches) if row.trial.point in points]

    # The best of all is point 3.
    found = fit([*rows((8, 16), range(8)), *rows((32, 64), range(3, 8)), *rows((128,), range(4))])
    assert [each for each in found.cautions if "edge" in each] == [
        "the best rate is at the edge of its range at 32, 64 (the least that was tried) and 128 (the largest that "
        "was tried): the steps may be fewer beyond"
    ]


def test_a_target_that_was_not_reached():
    rows = [TrialResult(Trial(batch, 0, 0), math.inf, "budget") for batch in BATCHES]
    with pytest.raises(StudyError, match="A study needs three batches at which the target was reached"):
        fit(rows)
