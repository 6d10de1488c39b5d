"""What holds for every ratio: composition, identity, monotony, and no step count of zero."""

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tfscale import scale_hyperparameters
from tfscale.scaling import scale_batch_norm_momentum, scale_callback_argument, warmup_factor
from tfscale.scaling.optimizer_table import OPTIMIZERS

ratios = st.integers(1, 64) | st.fractions(Fraction(1, 8), 64, max_denominator=12) | st.floats(0.1, 64)
betas = st.floats(0.9, 0.9999)
RULES = st.sampled_from(["auto", "linear", "sqrt", "none", lambda ratio: ratio**0.75])
WAYS = st.sampled_from(["keep", "memory"])

FULL = {
    "learning_rate": 0.1,
    "use_ema": True,
    "weight_decay": 0.01,
    "clipnorm": 1.0,
    "ema_momentum": 0.999,
    "warmup_steps": 1000,
    "l1_regularization_strength": 0.1,
    "l2_regularization_strength": 0.2,
    "beta": 0.3,
}


def full_config(name, **knobs):
    own = {"learning_rate", "use_ema", "weight_decay", "clipnorm", "ema_momentum", *OPTIMIZERS[name].knobs}
    values = {key: value for key, value in {**FULL, **knobs}.items() if key in own}
    return {"class_name": name, "config": values}


def numbers(config):
    return {key: value for key, value in config["config"].items() if not isinstance(value, bool)}


def unmarked(config):
    """As a user would who insists on doing it twice."""
    return {key: value for key, value in config.items() if key != "batch_ratio"}


@given(name=st.sampled_from(sorted(OPTIMIZERS)), rule=RULES, beta_1=WAYS, first=ratios, second=ratios)
def test_r_then_s_is_r_times_s(name, rule, beta_1, first, second):
    config, ways = full_config(name), {"rule": rule, "adam_beta_1": beta_1}
    # 0.9^4096 and less is 0 to no good, and refused.
    if beta_1 == "memory" and first * second > 1000:
        return
    once = scale_hyperparameters(config, Fraction(first) * Fraction(second), **ways).config
    half = scale_hyperparameters(config, first, **ways).config
    twice = scale_hyperparameters(unmarked(half), second, **ways).config
    once, twice = numbers(once), numbers(twice)
    for key in once.keys() | twice.keys():
        # A knob that a ratio of 1 left out has Keras's default, which is what the other ratio started from.
        if key in once and key in twice:
            assert math.isclose(once[key], twice[key], rel_tol=1e-6), key


@given(name=st.sampled_from(sorted(OPTIMIZERS)), rule=RULES)
def test_ratio_1_is_the_identity(name, rule):
    config = full_config(name)
    for one in (1, 1.0, Fraction(1)):
        assert scale_hyperparameters(config, one, rule=rule, warmup_steps=10).config == config


@given(name=st.sampled_from(sorted(OPTIMIZERS)), ratio=ratios, beta=betas, beta_1=WAYS)
def test_every_memory_stays_between_0_and_1(name, ratio, beta, beta_1):
    own = {
        key: beta
        for key in ("beta_1", "beta_2", "rho", "ema_momentum", "adam_beta_1")
        if key in full_config(name, **{key: 0})["config"]
    }
    scaled = scale_hyperparameters(full_config(name, **own), ratio, adam_beta_1=beta_1).config["config"]
    assert all(0 < scaled[key] < 1 for key in own)


@given(steps=st.integers(1, 10**6), ratio=ratios | st.integers(1, 10**7))
def test_no_period_is_ever_zero(steps, ratio):
    config = {"class_name": "SGD", "config": {"use_ema": True, "ema_momentum": 0.0, "ema_overwrite_frequency": steps}}
    scaled = scale_hyperparameters(config, ratio).config["config"]["ema_overwrite_frequency"]
    assert scaled >= 1
    assert abs(scaled - Fraction(steps) / Fraction(ratio)) <= max(Fraction(1, 2), 1 - Fraction(steps) / Fraction(ratio))
    for name in ("save_freq", "update_freq", "profile_batch"):
        assert scale_callback_argument(name, steps, ratio).new >= 1


@given(steps=st.integers(1, 10**6), ratio=ratios)
def test_no_fractional_length_is_ever_zero(steps, ratio):
    config = {"class_name": "ScheduleFreeAdamW", "config": {"warmup_steps": steps}}
    scaled = scale_hyperparameters(config, ratio).config["config"]["warmup_steps"]
    assert scaled > 0
    assert math.isclose(scaled * ratio, steps)


@given(momentum=betas, first=ratios, second=ratios)
def test_batch_norm_composes(momentum, first, second):
    once = scale_batch_norm_momentum(momentum, first * second)
    twice = scale_batch_norm_momentum(scale_batch_norm_momentum(momentum, first).new, second)
    assert math.isclose(once.new, twice.new, rel_tol=1e-6)


@given(
    factor=st.floats(1, 100),
    length=st.floats(0.5, 1000),
    positions=st.lists(st.floats(0, 2000), min_size=2).map(sorted),
)
def test_warmup_is_monotone_and_bounded(factor, length, positions):
    factors = [warmup_factor(position, factor, length) for position in positions]
    assert all(1 <= each <= factor for each in factors)
    assert factors == sorted(factors)
    assert warmup_factor(0, factor, length) == 1
    assert warmup_factor(length, factor, length) == factor


def replica_rate(schedule, ratio, factor, warmup_steps=0):
    """a(t) = warm-up(t r) * s(t r), as the config of a ReplicaSchedule says."""
    return lambda step: warmup_factor(step * ratio, factor, warmup_steps) * schedule(step * ratio)


@given(first=ratios, second=ratios, step=st.integers(0, 10_000))
def test_a_schedule_stretched_twice_is_stretched_by_the_product(first, second, step):
    def schedule(position):
        return 0.5 * (1 + math.cos(math.pi * min(1, position / 1000)))

    once = replica_rate(schedule, first * second, float(first * second))
    twice = replica_rate(replica_rate(schedule, first, float(first)), second, float(second))
    assert math.isclose(once(step), twice(step), rel_tol=1e-6, abs_tol=1e-9)
