"""`ReplicaSchedule` and `StepDecay` against closed forms in numpy."""

from fractions import Fraction

import keras
import numpy as np
import pytest

from tests.processes import run_case
from tfscale import ReplicaSchedule, ScalingError, StepDecay

schedules = keras.optimizers.schedules


def cosine(p, rate=0.1, steps=100, alpha=0.01):
    return rate * (alpha + (1 - alpha) * (1 + np.cos(np.pi * min(p, steps) / steps)) / 2)


def restarts(p, rate=0.1, first=20):
    """Every period twice as long as the one before, at the same height."""
    length = first
    while p >= length:
        p, length = p - length, 2 * length
    return rate * (1 + np.cos(np.pi * p / length)) / 2


def warmed_cosine(p):
    return 0.02 + (0.1 - 0.02) * p / 10 if p < 10 else cosine(p - 10)


# Each schedule of Keras, and the same as a function of the position.
SCHEDULES = {
    "float": (0.1, lambda p: 0.1),
    "int": (1, lambda p: 1.0),
    "numpy": (np.float32(0.5), lambda p: 0.5),
    "cosine": (schedules.CosineDecay(0.1, 100, alpha=0.01), cosine),
    "cosine with its own warm-up": (
        schedules.CosineDecay(0.02, 100, alpha=0.01, warmup_target=0.1, warmup_steps=10),
        warmed_cosine,
    ),
    "restarts": (schedules.CosineDecayRestarts(0.1, 20), restarts),
    "exponential": (schedules.ExponentialDecay(0.1, 30, 0.5), lambda p: 0.1 * 0.5 ** (p / 30)),
    "staircase": (schedules.ExponentialDecay(0.1, 30, 0.5, staircase=True), lambda p: 0.1 * 0.5 ** (p // 30)),
    "inverse time": (schedules.InverseTimeDecay(0.1, 30, 0.5), lambda p: 0.1 / (1 + 0.5 * p / 30)),
    "piecewise": (
        schedules.PiecewiseConstantDecay([15, 60], [0.1, 0.01, 0.001]),
        lambda p: 0.1 if p <= 15 else 0.01 if p <= 60 else 0.001,
    ),
    "polynomial": (
        schedules.PolynomialDecay(0.1, 80, 0.01, power=2),
        lambda p: 0.09 * (1 - min(p, 80) / 80) ** 2 + 0.01,
    ),
    "steps": (StepDecay(0.1, 0.5, 3), lambda p: 0.1 * 0.5 ** (p // 3)),
    "steps of a fraction": (StepDecay(0.1, 0.9, 2.5), lambda p: 0.1 * 0.9 ** (p // 2.5)),
}
RATIOS = (1, 8, 0.5, 2.5, Fraction(64, 7), Fraction(1, 3))


@pytest.mark.parametrize("ratio", RATIOS, ids=str)
@pytest.mark.parametrize("name", SCHEDULES)
def test_is_the_schedule_at_the_reference_position(name, ratio):
    schedule, expected = SCHEDULES[name]
    grown = ReplicaSchedule(schedule, ratio, rule="sqrt")
    for step in range(20):
        # As far as float32 tells positions apart, which matters where a schedule jumps.
        position = float(np.float32(step * float(ratio)))
        rate = np.sqrt(float(ratio)) * expected(position)
        assert float(grown(step)) == pytest.approx(rate, rel=2e-5, abs=1e-8), step


@pytest.mark.parametrize(
    ("rule", "factor"),
    [("linear", 8), ("sqrt", np.sqrt(8)), ("none", 1), (3.0, 3), (lambda ratio: ratio**0.75, 8**0.75)],
)
def test_warmup_rises_from_the_reference_rate(rule, factor):
    grown = ReplicaSchedule(schedules.CosineDecay(0.1, 1000), 8, rule=rule, warmup_steps=100)
    for step in (0, 1, 5, 12, 13, 50, 125, 200):
        position = 8 * step
        multiplier = 1 + (factor - 1) * min(1, position / 100)
        assert float(grown(step)) == pytest.approx(multiplier * cosine(position, steps=1000, alpha=0), rel=1e-5)
    assert float(grown(0)) == pytest.approx(0.1)


def test_several_decays_fall_into_one_step():
    grown = ReplicaSchedule(StepDecay(1.0, multiplier=0.5, interval=3), batch_ratio=8, rule="none")
    # floor(8 t / 3): two or three decays in each step.
    assert [float(grown(step)) for step in range(5)] == [0.5**k for k in (0, 2, 5, 8, 10)]


def test_ratio_of_one_is_the_identity():
    schedule = schedules.ExponentialDecay(0.1, 30, 0.5)
    same = ReplicaSchedule(schedule, 1, warmup_steps=100)
    assert [float(same(step)) for step in range(200)] == [float(schedule(step)) for step in range(200)]


@pytest.mark.parametrize(
    "schedule", [0.1, StepDecay(0.1, 0.5, 2.5), schedules.CosineDecay(0.1, 100)], ids=("rate", "step", "cosine")
)
@pytest.mark.parametrize(
    "rule", ["linear", "none", 3.0, lambda ratio: ratio**0.75], ids=("linear", "none", "3", "power")
)
def test_config_comes_back(schedule, rule):
    grown = ReplicaSchedule(schedule, Fraction(64, 7), rule=rule, warmup_steps=12.5)
    again = ReplicaSchedule.from_config(grown.get_config())
    assert again.get_config() == grown.get_config()
    serialised = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(grown))
    for step in (0, 1, 5, 40):
        assert float(again(step)) == float(serialised(step)) == pytest.approx(float(grown(step)), rel=1e-6)


def test_model_file_keeps_it(tmp_path):
    schedule = ReplicaSchedule(StepDecay(0.1, 0.5, 3), 8, warmup_steps=10)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(schedule), "mse")
    model.fit(np.ones((6, 2)), np.ones((6, 1)), batch_size=2, verbose=0)
    model.save(tmp_path / "model.keras")
    optimizer = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert int(optimizer.iterations.numpy()) == 3
    assert optimizer.get_config()["learning_rate"] == model.optimizer.get_config()["learning_rate"]
    assert float(optimizer.learning_rate) == float(schedule(3))


def test_on_replicas():
    found = run_case("tests.rederive.cases_schedules:weights_on_replicas", args=(2,))
    # The gradient of every step is 1, so each step moves the weight by its rate.
    rates = [0.1 * 0.5 ** (2 * t // 3) * (1 + min(1, 2 * t / 4)) for t in range(5)]
    for weights in found["weights"]:
        np.testing.assert_allclose(weights, -np.cumsum(rates), rtol=1e-5)
    assert found["traces"] == 1


class Holder(schedules.LearningRateSchedule):
    """A schedule that holds others."""

    def __init__(self, inner):
        self.inner = inner

    def __call__(self, step):
        return self.inner[0](step)


def test_refuses_to_wrap_twice():
    grown = ReplicaSchedule(0.1, 8)
    for schedule in (grown, Holder([grown]), Holder({"first": Holder([0.1, grown])})):
        with pytest.raises(ScalingError, match=r"only once(.|\n)*Received: a ReplicaSchedule with batch_ratio=8"):
            ReplicaSchedule(schedule, 2)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("0.1", 8), "`schedule` must be"),
        ((lambda step: 0.1, 8), "`schedule` must be"),
        ((True, 8), "`schedule` must be"),
        ((-0.1, 8), "`schedule` must be"),
        ((float("nan"), 8), "`schedule` must be"),
        ((0.1, 0), "batch ratio must be"),
        ((0.1, -1), "batch ratio must be"),
        ((0.1, float("nan")), "batch ratio must be"),
    ],
)
def test_bad_schedule_or_ratio(arguments, rule):
    with pytest.raises(ScalingError, match=rf"{rule}(.|\n)*Received: .*\. [A-Z]"):
        ReplicaSchedule(*arguments)


@pytest.mark.parametrize("warmup_steps", [-1, float("inf"), float("nan"), "auto", None, True])
def test_bad_warmup(warmup_steps):
    with pytest.raises(ScalingError, match=r"`warmup_steps` must be(.|\n)*Received: warmup_steps="):
        ReplicaSchedule(0.1, 8, warmup_steps=warmup_steps)


@pytest.mark.parametrize("rule", ["auto", "cubic", 0, -1.0, None])
def test_bad_rule(rule):
    with pytest.raises(ScalingError, match=r"`rule` must say(.|\n)*Received: rule="):
        ReplicaSchedule(0.1, 8, rule=rule)


@pytest.mark.parametrize("name", ["initial_learning_rate", "multiplier", "interval"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "3", None, True])
def test_bad_step_decay(name, value):
    arguments = {"initial_learning_rate": 0.1, "multiplier": 0.5, "interval": 3, name: value}
    with pytest.raises(ScalingError, match=rf"`{name}` must be a positive number(.|\n)*Received: {name}="):
        StepDecay(**arguments)
