"""Do compensated runs on a noisy quadratic make the progress of the reference run, and uncompensated ones not?

At ratio 8, in mean and spread after each epoch. The knobs of the grown run come from `scale_hyperparameters`; what they
have to reproduce comes from the reference run, and for plain SGD from the closed form.
"""

import math

import numpy as np
import pytest

from tests.scaling import quadratic
from tests.scaling.quadratic import CURVATURE, SIGMA, run
from tfscale import scale_hyperparameters
from tfscale.scaling import scale_batch_norm_momentum, warmup_factor
from tfscale.scaling.optimizer_table import OPTIMIZERS

RATIO = 8
# How far mean (of a start at 1) and spread (relative) may be from the reference's after any epoch. One larger step is
# not exactly eight small ones: the error is of the order of the progress in a step.
MEAN, SPREAD = 0.06, 0.2
FAR = 0.1


def both(class_name, adam_beta_1="keep", **knobs):
    """Returns all knobs of the reference run, and those of the grown one."""
    defaults = {name: default for name, (default, _) in OPTIMIZERS[class_name].knobs.items()}
    reference = {**defaults, **knobs}
    config = {"class_name": class_name, "config": reference}
    return reference, scale_hyperparameters(config, RATIO, adam_beta_1=adam_beta_1).config["config"]


def distance(found, expected):
    """Returns the largest differences of mean and of relative spread over the epochs."""
    mean, spread = np.abs(found - expected)[:, 0], np.abs(found / expected - 1)[:, 1]
    return mean.max(), spread.max()


@pytest.mark.parametrize(
    ("class_name", "step", "knobs"),
    [
        ("SGD", "sgd", {"learning_rate": 0.001}),
        ("SGD", "sgd", {"learning_rate": 0.0002, "momentum": 0.8}),
        ("SGD", "sgd", {"learning_rate": 0.001, "weight_decay": 2.0}),
        ("Adam", "adam", {"learning_rate": 0.02}),
        # An average over a tenth of the run's examples, and noise alone in it: what beta_1^r is for.
        ("Adam", "adam", {"learning_rate": 0.02, "beta_1": 0.98, "adam_beta_1": "memory"}),
        ("Adam", "adam", {"learning_rate": 0.04, "epsilon": 30.0}),
        ("AdamW", "adam", {"learning_rate": 0.02, "weight_decay": 0.1}),
        ("Adamax", "adamax", {"learning_rate": 0.05, "beta_2": 0.99, "adam_beta_1": "memory"}),
        ("RMSprop", "rmsprop", {"learning_rate": 0.02, "rho": 0.99}),
        ("RMSprop", "rmsprop", {"learning_rate": 0.005, "rho": 0.99, "momentum": 0.8}),
        ("RMSprop", "rmsprop", {"learning_rate": 0.04, "rho": 0.99, "epsilon": 2000.0}),
        ("Adagrad", "adagrad", {"learning_rate": 1.0, "initial_accumulator_value": 9e4}),
        ("Adadelta", "adadelta", {"learning_rate": 1.0, "epsilon": 1e-6}),
        ("Adafactor", "adafactor", {"learning_rate": 0.02}),
        ("Ftrl", "ftrl", {"learning_rate": 1.0, "initial_accumulator_value": 9e4}),
        ("Ftrl", "ftrl", {"learning_rate": 30.0, "initial_accumulator_value": 9e4, "learning_rate_power": -0.75}),
        (
            "Ftrl",
            "ftrl",
            {
                "learning_rate": 1.0,
                "initial_accumulator_value": 9e4,
                "beta": 500.0,
                "l2_regularization_strength": 100.0,
            },
        ),
        ("Lion", "lion", {"learning_rate": 0.005}),
        ("Lamb", "lamb", {"learning_rate": 0.004}),
        ("ScheduleFreeAdamW", "schedule_free", {"learning_rate": 0.04}),
        ("ScheduleFreeAdamW", "schedule_free", {"learning_rate": 0.04, "warmup_steps": 400}),
    ],
)
def test_compensated_runs_match_and_others_do_not(class_name, step, knobs):
    step = getattr(quadratic, step)
    reference, grown = both(class_name, **knobs)
    expected = run(step, reference)
    mean, spread = distance(run(step, grown, ratio=RATIO), expected)
    assert mean < MEAN
    assert spread < SPREAD
    mean, spread = distance(run(step, reference, ratio=RATIO), expected)
    assert mean > FAR
    assert spread > FAR


@pytest.mark.parametrize(
    ("class_name", "step", "knobs"),
    [
        ("Adam", "adam", {"learning_rate": 0.02}),
        ("AdamW", "adam", {"learning_rate": 0.02, "weight_decay": 0.1}),
        # The largest of few large gradients is small at first, so that its spread is a third too large for an epoch.
        ("Adamax", "adamax", {"learning_rate": 0.05, "beta_2": 0.99}),
    ],
)
def test_as_much_progress_with_beta_1_kept(class_name, step, knobs):
    step = getattr(quadratic, step)
    reference, grown = both(class_name, **knobs)
    assert grown["beta_1"] == 0.9
    found, expected = run(step, grown, ratio=RATIO), run(step, reference)
    mean, _ = distance(found, expected)
    assert mean < MEAN
    assert distance(found[4:], expected[4:])[1] < SPREAD


def test_sgd_follows_the_closed_form():
    # w' = (1 - a h) w - a s z: a geometric mean, and a variance that is a geometric sum.
    reference, grown = both("SGD", learning_rate=0.001)
    steps = np.arange(1, 9) * 2000 // 8
    shrink = 1 - 0.001 * CURVATURE
    variance = (0.001 * SIGMA) ** 2 * (1 - shrink ** (2 * steps)) / (1 - shrink**2)
    expected = np.stack([shrink**steps, np.sqrt(variance)], axis=1)
    for found in (run(quadratic.sgd, reference), run(quadratic.sgd, grown, ratio=RATIO)):
        mean, spread = distance(found, expected)
        assert mean < MEAN
        assert spread < SPREAD


@pytest.mark.parametrize(
    ("class_name", "step", "wrong", "knobs"),
    [
        # Each knob alone, left as it was: the row of the table that it stands for is needed.
        ("AdamW", "adam", "weight_decay", {"learning_rate": 0.02, "weight_decay": 0.1}),
        ("Adam", "adam", "epsilon", {"learning_rate": 0.04, "epsilon": 30.0}),
        ("RMSprop", "rmsprop", "epsilon", {"learning_rate": 0.04, "rho": 0.99, "epsilon": 2000.0}),
        ("Adam", "adam", "beta_1", {"learning_rate": 0.02, "beta_1": 0.995, "adam_beta_1": "memory"}),
        ("Adagrad", "adagrad", "initial_accumulator_value", {"learning_rate": 1.0, "initial_accumulator_value": 9e4}),
        ("Ftrl", "ftrl", "beta", {"learning_rate": 1.0, "initial_accumulator_value": 9e4, "beta": 500.0}),
        ("ScheduleFreeAdamW", "schedule_free", "warmup_steps", {"learning_rate": 0.04, "warmup_steps": 400}),
    ],
)
def test_every_knob_is_needed(class_name, step, wrong, knobs):
    step = getattr(quadratic, step)
    reference, grown = both(class_name, **knobs)
    expected = run(step, reference)
    right, _ = distance(run(step, grown, ratio=RATIO), expected)
    left, _ = distance(run(step, {**grown, wrong: reference[wrong]}, ratio=RATIO), expected)
    assert left > 2 * right


@pytest.mark.parametrize(
    ("class_name", "step", "knobs"),
    [("Lion", "lion", {"learning_rate": 0.005}), ("Lamb", "lamb", {"learning_rate": 0.004})],
)
def test_beta_to_the_r_would_be_wrong_for_what_divides_by_its_own_size(class_name, step, knobs):
    step = getattr(quadratic, step)
    reference, grown = both(class_name, **knobs)
    expected = run(step, reference)
    naive = {
        **reference,
        "learning_rate": reference["learning_rate"] * math.sqrt(RATIO),
        "beta_1": reference["beta_1"] ** RATIO,
        "beta_2": reference["beta_2"] ** RATIO,
    }
    right, _ = distance(run(step, grown, ratio=RATIO), expected)
    wrong, _ = distance(run(step, naive, ratio=RATIO), expected)
    assert wrong > 4 * right


def test_sqrt_would_be_wrong_for_adagrad():
    reference, grown = both("Adagrad", learning_rate=1.0, initial_accumulator_value=9e4)
    expected = run(quadratic.adagrad, reference)
    right, _ = distance(run(quadratic.adagrad, grown, ratio=RATIO), expected)
    root = {**grown, "learning_rate": math.sqrt(RATIO)}
    wrong, _ = distance(run(quadratic.adagrad, root, ratio=RATIO), expected)
    assert wrong > 4 * right


def test_average_of_the_weights():
    config = {"learning_rate": 0.001, "use_ema": True, "ema_momentum": 0.995}
    grown = scale_hyperparameters({"class_name": "SGD", "config": config}, RATIO).config["config"]
    expected = run(quadratic.sgd, config, average=0.995)
    mean, spread = distance(run(quadratic.sgd, grown, ratio=RATIO, average=grown["ema_momentum"]), expected)
    assert mean < MEAN
    assert spread < SPREAD
    mean, _ = distance(run(quadratic.sgd, grown, ratio=RATIO, average=0.995), expected)
    assert mean > FAR


def cosine(position, steps=2000):
    return 0.002 * 0.5 * (1 + math.cos(math.pi * min(1.0, position / steps)))


def test_schedule_is_stretched():
    cosine_config = {"class_name": "CosineDecay", "config": {"initial_learning_rate": 0.002, "decay_steps": 2000}}
    config = {"class_name": "SGD", "config": {"learning_rate": cosine_config}}
    wrapped = scale_hyperparameters(config, RATIO).config["config"]["learning_rate"]["config"]
    assert (wrapped["batch_ratio"], wrapped["rule"]) == (RATIO, "linear")
    expected = run(quadratic.sgd, {}, rate=cosine)
    mean, spread = distance(run(quadratic.sgd, {}, ratio=RATIO, rate=lambda step: 8 * cosine(step * 8)), expected)
    assert mean < MEAN
    assert spread < SPREAD
    # Scaled, but not stretched, it never decays, and the spread stays.
    _, spread = distance(run(quadratic.sgd, {}, ratio=RATIO, rate=lambda step: 8 * cosine(step)), expected)
    assert spread > 2 * SPREAD


def test_warmup_keeps_a_rate_that_is_too_high_at_first_from_blowing_up():
    # Curvature that falls from 4 to 1: 8 times the rate is unstable at first, and stable after the warm-up.
    def run_with(warmup_steps):
        weight, largest = 1.0, 1.0
        for step in range(100):
            curvature = 1 + 3 * math.exp(-step / 10)
            weight -= 0.1 * warmup_factor(step * RATIO, RATIO, warmup_steps) * curvature * weight
            largest = max(largest, abs(weight))
        return largest

    assert run_with(0) > 10
    assert run_with(50 * RATIO) == 1


def test_moving_statistics_of_batch_norm():
    # A mean that jumps from 0 to 1 at example 0, seen through the noise of one batch, or of 8 replicas' batches.
    rng = np.random.default_rng(0)

    def follow(momentum, ratio, steps=800):
        moving, seen = np.zeros(3000), []
        for number in range(steps // ratio):
            moving = momentum * moving + (1 - momentum) * (1 + rng.standard_normal(3000) / np.sqrt(ratio))
            if (number + 1) % (steps // ratio // 4) == 0:
                seen.append((moving.mean(), moving.std()))
        return np.array(seen)

    expected = follow(0.995, 1)
    mean, spread = distance(follow(scale_batch_norm_momentum(0.995, RATIO).new, RATIO), expected)
    assert mean < MEAN
    assert spread < SPREAD
    mean, _ = distance(follow(0.995, RATIO), expected)
    assert mean > FAR
