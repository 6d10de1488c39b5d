"""The noise scale of a window of steps, its interval and what it foresees, in simulations with a known truth."""

import math

import numpy as np
import pytest

from tfscale import MeasureError
from tfscale.measure import StepMoments, estimate_noise_scale, steps_needed

EXAMPLES = 32


def windows(y, shards, dimension, steps, count, *, seed, growth=1.0):
    """Windows of steps with |G| = 1, x = y n, and noise that is alike in d directions, of which one is the gradient's.

    Sums of squares of Gaussian numbers: A - q has (K - 1) d of them, and q has d, of which one is moved by |G|.
    """
    rng = np.random.default_rng(seed)
    noise = y * growth ** np.linspace(0, 1, steps) / dimension  # v / n, per direction
    for _ in range(count):
        between = noise * rng.chisquare((shards - 1) * dimension, steps)
        norm = noise * rng.noncentral_chisquare(dimension, 1 / noise, steps)
        variances = EXAMPLES * between / (shards - 1)
        means = norm - variances / EXAMPLES
        yield [StepMoments(v, m, EXAMPLES, shards) for v, m in zip(variances.tolist(), means.tolist(), strict=True)]


@pytest.mark.parametrize(
    # The ends are those that were found in other simulations, of the gradients themselves: 5, 50 and 95 %.
    ("y", "shards", "dimension", "steps", "low", "high", "farther_than_2"),
    [
        (1, 2, 10, 30, 0.71, 1.46, 0.002),
        (4, 2, 10, 100, 0.66, 2.05, 0.053),
        (4, 2, 10, 300, 0.78, 1.40, 0.001),
        (16, 8, 100, 300, 0.79, 1.31, 0.001),
    ],
)
def test_a_ratio_of_sums(y, shards, dimension, steps, low, high, farther_than_2):
    found = [estimate_noise_scale(each).value for each in windows(y, shards, dimension, steps, 1500, seed=11)]
    ratios = np.array([math.inf if each is None else each / (y * EXAMPLES) for each in found])
    assert np.quantile(ratios, [0.05, 0.5, 0.95]) == pytest.approx([low, 1.0, high], rel=0.1)
    assert np.mean((ratios < 0.5) | (ratios > 2)) == pytest.approx(farther_than_2, abs=0.02)


def test_a_mean_or_median_of_ratios_would_be_wrong():
    [steps] = windows(4, 2, 10, 3000, 1, seed=12)
    ratios = [step.variance / step.squared_mean / (4 * EXAMPLES) for step in steps]
    assert abs(np.median(ratios)) < 0.3
    assert estimate_noise_scale(steps).value == pytest.approx(4 * EXAMPLES, rel=0.25)


@pytest.mark.parametrize(
    ("y", "shards", "dimension", "steps", "growth"),
    [(1, 2, 10, 30, 1), (1, 2, 10, 100, 1), (4, 2, 10, 100, 1), (16, 8, 100, 300, 1), (1, 4, 10, 100, 4)],
)
def test_the_interval_holds_the_truth(y, shards, dimension, steps, growth):
    # The truth of a window in which the noise grows is the ratio of what is added up.
    truth = EXAMPLES * y * np.mean(growth ** np.linspace(0, 1, steps))
    found = [estimate_noise_scale(each) for each in windows(y, shards, dimension, steps, 2000, seed=13, growth=growth)]
    holds = [each.low <= truth and (each.high is None or truth <= each.high) for each in found]
    # Where it grows the blocks differ by more than chance, and the interval is on the safe side.
    assert 0.93 <= np.mean(holds) <= (0.97 if growth == 1 else 0.99)
    for each in found:
        assert each.high is None or each.low <= each.value <= each.high


def test_no_upper_end_where_the_gradient_is_not_told_from_0():
    found = [estimate_noise_scale(each) for each in windows(64, 2, 10, 100, 200, seed=14)]
    unbounded = [each for each in found if each.high is None]
    assert len(unbounded) > 150
    assert np.mean([each.low <= 64 * EXAMPLES for each in unbounded]) > 0.93
    for each in unbounded:
        assert "at least" in str(each)
    # Noise alone.
    steps = [StepMoments(100.0, (-1.0) ** number, EXAMPLES, 2) for number in range(100)]
    none = estimate_noise_scale(steps)
    assert (none.value, none.high, none.steps_needed, none.steps_left) == (None, None, None, None)
    assert "not enough to foresee" in str(none)


def test_no_noise_at_all():
    found = estimate_noise_scale([StepMoments(0.0, 2.0, EXAMPLES, 2)] * 40)
    assert (found.value, found.low, found.high, found.steps_left) == (0.0, 0.0, 0.0, 0)
    silent = estimate_noise_scale([StepMoments(0.0, 0.0, EXAMPLES, 2)] * 40)
    assert (silent.value, silent.low, silent.high) == (None, 0.0, None)


@pytest.mark.parametrize("steps", range(20))
def test_too_few_steps(steps):
    assert estimate_noise_scale([StepMoments(1.0, 1.0, EXAMPLES, 2)] * steps) is None


@pytest.mark.parametrize("steps", [20, 23, 29, 31])
def test_every_step_counts_once(steps):
    # Blocks of unequal lengths, all steps in them: the value is that of the sums.
    rows = [StepMoments(float(number), 1.0, EXAMPLES, 2) for number in range(steps)]
    assert estimate_noise_scale(rows).value == sum(range(steps)) / steps


@pytest.mark.parametrize(("y", "shards", "dimension"), [(1, 2, 10), (4, 2, 10), (4, 8, 10), (16, 8, 100)])
def test_after_the_steps_that_were_foreseen_the_error_is_small(y, shards, dimension):
    # The gradient is one of the directions of the noise.
    needed = steps_needed(
        y * EXAMPLES, examples=EXAMPLES, shards=shards, dimension=dimension, along_gradient=1 / dimension
    )
    found = [estimate_noise_scale(each) for each in windows(y, shards, dimension, needed, 1500, seed=15)]
    ratios = [math.inf if each.value is None else each.value / (y * EXAMPLES) for each in found]
    # 90 %, to within a standard error of this many windows.
    assert np.mean([1 / 1.5 <= each <= 1.5 for each in ratios]) >= 0.89


@pytest.mark.parametrize(("y", "shards", "dimension"), [(1, 2, 10), (4, 8, 10), (16, 8, 100)])
def test_what_a_run_foresees(y, shards, dimension):
    right = steps_needed(y * EXAMPLES, examples=EXAMPLES, shards=shards, dimension=dimension)
    found = [estimate_noise_scale(each) for each in windows(y, shards, dimension, 2 * right, 200, seed=16)]
    assert np.median([each.steps_needed for each in found]) == pytest.approx(right, rel=0.25)
    assert np.mean([each.steps_left == 0 for each in found]) > 0.85
    early = [estimate_noise_scale(each) for each in windows(y, shards, dimension, max(20, right // 8), 200, seed=17)]
    if right // 8 >= 20:
        assert np.mean([each.steps_left is None or each.steps_left > 0 for each in early]) > 0.9


def test_forecast_by_the_formula():
    # The spread of v / m in a step, simulated.
    [steps] = windows(4, 8, 10, 200_000, 1, seed=18)
    v, m = (np.array([getattr(step, name) for step in steps]) for name in ("variance", "squared_mean"))
    spread = np.var(v / v.mean() - m / m.mean())
    found = steps_needed(4 * EXAMPLES, examples=EXAMPLES, shards=8, dimension=10, along_gradient=0.1, error=0.1)
    assert found == pytest.approx(spread * 1.02 / 0.01, rel=0.02)
    # Two shards cost up to twice the steps of many.
    many = steps_needed(512, examples=32, shards=10**6, dimension=10)
    assert 1.5 < steps_needed(512, examples=32, shards=2, dimension=10) / many < 2.2


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"noise_scale": -1.0}, "noise_scale"),
        ({"noise_scale": math.nan}, "noise_scale"),
        ({"examples": 0}, "examples"),
        ({"shards": 1}, "shards"),
        ({"shards": True}, "shards"),
        ({"dimension": 0.0}, "dimension"),
        ({"along_gradient": 1.5}, "along_gradient"),
        ({"error": 0.0}, "error"),
        ({"error": "0.1"}, "error"),
    ],
)
def test_bad_forecast(change, name):
    good = {"noise_scale": 32.0, "examples": 32, "shards": 2, "dimension": 10}
    arguments = {**good, **change}
    with pytest.raises(MeasureError, match=rf"`{name}` must be a number in its range\.\nReceived: {name}="):
        steps_needed(arguments.pop("noise_scale"), **arguments)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_steps_that_are_not_finite(wrong):
    with pytest.raises(MeasureError, match="`steps` must have finite moments"):
        estimate_noise_scale([StepMoments(1.0, wrong, EXAMPLES, 2)] * 40)
