"""The two moments of a step, against Gaussian gradients of which the truth is known."""

import math

import numpy as np
import pytest

from tfscale import MeasureError
from tfscale.measure import StepMoments, step_moments
from tfscale.measure.moments import weigh_shards

DIRECTIONS = 12
NUM_STEPS = 10_000


def simulate(rows, *, variance, gradient, spread, scale=1.0, seed=7):
    """Moments of many steps: shard i with n_i examples has a mean gradient with the variance v / n_i."""
    rng = np.random.default_rng(seed)
    found = []
    examples = sum(rows)
    weights = weigh_shards(rows)
    deviations = np.sqrt(variance * spread)
    for _ in range(NUM_STEPS):
        gradients = [
            scale * (gradient + deviations / math.sqrt(n) * rng.standard_normal(DIRECTIONS)) if n else None
            for n in rows
        ]
        present = [(w, g) for w, g in zip(weights, gradients, strict=True) if g is not None]
        squares = sum(w * g @ g for w, g in present)
        mean = sum(w * g for w, g in present)
        found.append(step_moments(squares, mean @ mean, examples, len(present), loss_scale=scale))
    return found


@pytest.mark.parametrize("rows", [(64, 32, 32, 16), (1, 7, 56), (16, 16), (8, 0, 24, 8)])
@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_unbiased_for_shards_of_any_sizes(rows, scale):
    spread = np.arange(1, DIRECTIONS + 1) / np.arange(1, DIRECTIONS + 1).sum()
    gradient = np.ones(DIRECTIONS) / math.sqrt(DIRECTIONS)
    examples, shards = sum(rows), sum(map(bool, rows))
    variance = 1.0 * examples  # x = n
    found = simulate(rows, variance=variance, gradient=gradient, spread=spread, scale=scale)
    variances = np.array([step.variance for step in found])
    means = np.array([step.squared_mean for step in found])
    assert variances.mean() == pytest.approx(variance, rel=0.01)
    assert means.mean() == pytest.approx(1.0, abs=4 * means.std() / math.sqrt(NUM_STEPS))
    # Of the noise d is (tr S)^2 / tr S^2, and rho its part along the gradient; y = 1.
    dimension, along = 1 / np.sum(spread**2), np.sum(spread * gradient**2)
    assert variances.std() / variance == pytest.approx(math.sqrt(2 / ((shards - 1) * dimension)), rel=0.05)
    expected = 4 * along + 2 * shards / ((shards - 1) * dimension)
    assert means.std() == pytest.approx(math.sqrt(expected), rel=0.05)


def test_the_same_of_replicas_and_of_micro_batches():
    # Eight shards are two of four replicas, four of two, or eight of one: the sums are the same.
    rng = np.random.default_rng(1)
    gradients = rng.standard_normal((8, 5))
    squares = [float(each @ each) / 8 for each in gradients]
    mean = gradients.mean(axis=0)
    found = [
        step_moments(sum(sum(squares[i::parts]) for i in range(parts)), mean @ mean, 64, 8) for parts in (1, 2, 4, 8)
    ]
    for other in found[1:]:
        assert (other.variance, other.squared_mean) == pytest.approx((found[0].variance, found[0].squared_mean))


def test_what_an_l2_term_adds_is_part_of_the_gradient():
    # The same vector in the gradient of every shard: v stays as it is.
    rng = np.random.default_rng(2)
    gradients, penalty = rng.standard_normal((4, 5)), rng.standard_normal(5)

    def variance(own):
        mean = own.mean(axis=0)
        return step_moments(float(np.mean(np.sum(own**2, axis=1))), mean @ mean, 4, 4).variance

    assert variance(gradients + 10 * penalty) == pytest.approx(variance(gradients), rel=1e-9)


def test_sums_over_groups_of_variables_are_the_total():
    rng = np.random.default_rng(3)
    gradients = rng.standard_normal((3, 9))
    groups = (slice(0, 2), slice(2, 3), slice(3, 9))

    def moments(own):
        mean = own.mean(axis=0)
        return step_moments(float(np.mean(np.sum(own**2, axis=1))), mean @ mean, 12, 3)

    parts, total = [moments(gradients[:, group]) for group in groups], moments(gradients)
    assert sum(part.variance for part in parts) == pytest.approx(total.variance, rel=1e-9)
    assert sum(part.squared_mean for part in parts) == pytest.approx(total.squared_mean, rel=1e-9)


@pytest.mark.parametrize(
    ("squares", "norm", "shards"),
    [(2.0, 1.0, 1), (math.inf, 1.0, 2), (2.0, math.inf, 2), (math.nan, 1.0, 2), (2.0, math.nan, 8), (1e308, 1e308, 1)],
)
def test_steps_that_say_nothing(squares, norm, shards):
    assert step_moments(squares, norm, 8, shards) is None


def test_numbers_of_numpy():
    found = step_moments(np.float32(17.0), np.float32(16.0), np.int64(2), np.int32(2))
    assert found == StepMoments(2.0, 15.0, 2.0, 2)
    assert type(found.shards) is int


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weighted_squares": -1.0}, "`weighted_squares` must be a number, 0 or more"),
        ({"squared_norm": "1"}, "`squared_norm` must be a number, 0 or more"),
        ({"squared_norm": True}, "`squared_norm` must be a number, 0 or more"),
        ({"examples": 0}, "`examples` must be a positive number"),
        ({"examples": math.nan}, "`examples` must be a positive number"),
        ({"examples": 10**400}, "`examples` must be a positive number"),
        ({"shards": 0}, "`shards` must be a positive integer"),
        ({"shards": 2.5}, "`shards` must be a positive integer"),
        ({"shards": True}, "`shards` must be a positive integer"),
        ({"loss_scale": 0.0}, "`loss_scale` must be a positive number"),
        ({"loss_scale": math.inf}, "`loss_scale` must be a positive number"),
    ],
)
def test_bad_input(change, said):
    good = {"weighted_squares": 2.0, "squared_norm": 1.0, "examples": 8, "shards": 2}
    with pytest.raises(MeasureError, match=said) as caught:
        step_moments(**{**good, **change})
    assert "\nReceived: " in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("rows", [[], [0, 0], [1, -1], [1, math.nan], ["1"], [True]])
def test_bad_rows(rows):
    with pytest.raises(MeasureError, match="`rows` must be numbers"):
        weigh_shards(rows)
